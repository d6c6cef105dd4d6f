from __future__ import annotations

from dashboard.prices import Prices
from dashboard.views.usage import requests_of, since, totals
from observability.admin_api import UsageRow


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
