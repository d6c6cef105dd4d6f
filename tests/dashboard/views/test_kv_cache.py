"""The KV cache page, drawn from a running Quire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.settings import ADMIN_VARIABLE, SERVERS_VARIABLE
from dashboard.views.kv_cache import holder_rows, in_order, prefix_rows
from observability.admin_api import KvMap, Owner, PrefixTree, SharedPrefix
from tests.e2e.quire_server import QuireServer, free_port, until


def _draw() -> None:
    from dashboard.views import kv_cache

    kv_cache.page()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[QuireServer]:
    port = free_port()
    with QuireServer("simulated:h100-8b", "--admin-port", str(port)) as server:
        monkeypatch.setenv(SERVERS_VARIABLE, server.url)
        monkeypatch.setenv(ADMIN_VARIABLE, f"http://127.0.0.1:{port}")
        yield server


def test_shared_prefixes_and_blocks_are_shown(served: QuireServer) -> None:
    before = AppTest.from_function(_draw, default_timeout=60).run()
    assert not before.exception
    assert [one.value for one in before.info] == [
        "No request holds a block.",
        "No prefix has been reused yet.",
    ]
    common = "The same words at the start of each prompt. " * 20
    for end in ("One.", "Two.", "Three."):
        body = {"model": "simulated:h100-8b", "prompt": common + end, "max_tokens": 4}
        assert served.post("/v1/completions", body)[0] == 200

    def drawn() -> bool:
        """The engine is asked twice a second at most; until then, the last map is shown."""
        nonlocal after
        after = AppTest.from_function(_draw, default_timeout=60).run()
        assert not after.exception
        return bool(len(after.dataframe))

    after = before
    until(drawn, 60, "a prefix")
    assert "**0** of" in after.markdown[0].value
    (table,) = after.dataframe
    found = table.value
    assert found["hits"].max() == 2
    assert found["prefix"].str.endswith(" tokens").all()
    assert found["computed by"].str.startswith("req_").all()


def test_the_largest_holder_comes_first_with_its_share() -> None:
    owners = (Owner("req_a", "ann", 1, 10), Owner("req_b", None, 3, 48))
    pool = KvMap(1.0, 8, 16, 4, 0, 4, (), owners)
    rows = holder_rows(pool)
    assert [row["request"] for row in rows] == ["req_b", "req_a"]
    assert [row["share of pool"] for row in rows] == ["37.5 %", "12.5 %"]


def test_a_prefix_is_indented_below_the_one_that_it_continues() -> None:
    def prefix(parent: int | None, tokens: int) -> SharedPrefix:
        return SharedPrefix(parent, tokens, 0, 1, 7.0, f"req_{tokens}")

    tree = PrefixTree((prefix(None, 64), prefix(None, 32), prefix(0, 16), prefix(2, 8)), 120)
    assert in_order(tree) == [(0, 0), (2, 1), (3, 2), (1, 0)]
    rows = prefix_rows(tree, now=9.0)
    assert [row["prefix"].strip() for row in rows] == [
        "64 tokens",
        "+ 16 tokens",
        "+ 8 tokens",
        "32 tokens",
    ]
    assert {row["last used"] for row in rows} == {"2.00 s ago"}
