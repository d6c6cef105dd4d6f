from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.prices import Prices
from dashboard.settings import ADMIN_VARIABLE, SERVERS_VARIABLE
from dashboard.views.usage import requests_of, since, totals
from observability.admin_api import UsageRow
from tests.dashboard.running import set_clock, wrong_clock
from tests.e2e.quire_server import QuireServer, free_port, until


def used(group: str, prompt: int, output: int) -> UsageRow:
    return UsageRow(
        start=0.0,
        group=group,
        requests=1,
        errors=0,
        prompt_tokens=prompt,
        cached_tokens=0,
        output_tokens=output,
        reasoning_tokens=0,
        seconds=1.0,
    )


def test_the_one_who_used_most_comes_first_with_its_share() -> None:
    rows = [used("alice", 10, 10), used("bob", 30, 10), used("alice", 10, 30)]
    table = totals(rows, "key")
    assert [row["key"] for row in table] == ["alice", "bob"]
    assert [row["share of tokens"] for row in table] == [0.6, 0.4]
    assert table[0]["requests"] == 2
    assert totals([], "key") == []


def test_with_prices_each_row_has_its_cost() -> None:
    (row,) = totals([used("alice", 3_000_000, 500_000)], "key", Prices(1.0, 0.5, 2.0))
    assert row["cost"] == 4.0
    assert "cost" not in totals([used("alice", 1, 1)], "key")[0]


def test_days_begin_at_midnight() -> None:
    assert since("today", 86_400 * 20 + 5.0) == 86_400 * 20
    assert since("7 days", 86_400 * 20 + 5.0) == 86_400 * 14


def test_a_row_leads_to_its_requests() -> None:
    assert requests_of("key", "other", "today") == {"key": "other", "since": "24 hours"}
    assert requests_of("route", "messages", "30 days") == {"route": "messages", "since": "7 days"}


def _draw() -> None:
    from dashboard.views import usage

    usage.page()


@pytest.mark.parametrize("days", [-2, 2])
def test_today_is_the_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, days: int) -> None:
    port = free_port()
    server = QuireServer("simulated:h100-8b", "--admin-port", str(port))
    set_clock(wrong_clock(server, tmp_path / "clock"), days * 86_400)
    with server:
        monkeypatch.setenv(SERVERS_VARIABLE, server.url)
        monkeypatch.setenv(ADMIN_VARIABLE, f"http://127.0.0.1:{port}")
        assert server.post("/v1/completions", {"prompt": "Hello", "max_tokens": 2})[0] == 200
        page = AppTest.from_function(_draw, default_timeout=60)

        def shown() -> bool:
            page.run()
            assert not page.exception
            return bool(page.dataframe)

        until(shown, 30, "the request")
        assert page.dataframe[0].value["requests"].tolist() == [1]
