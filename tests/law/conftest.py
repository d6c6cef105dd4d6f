"""One server for all tests of the law."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.law.measuring import Ask, LawServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LawServer]:
    with LawServer(tmp_path_factory.mktemp("law")) as running:
        # Processes and caches that every server comes to have are not what a request costs.
        long = {"messages": [{"role": "user", "content": "word " * 2000}], "max_tokens": 1}
        running.cost_of([Ask("/v1/chat/completions", long)] * 8)
        yield running
