from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.e2e.quire_server import QuireServer


@pytest.fixture(scope="session")
def server() -> Iterator[QuireServer]:
    """The product as `make serve` starts it, with the embedded model."""
    with QuireServer() as running:
        yield running


@pytest.fixture
def client(server: QuireServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)
