from __future__ import annotations

from dashboard.views.requests import nothing_matches, row_of
from observability.admin_api import KeptRequest


def test_a_row_says_what_took_longest() -> None:
    request = KeptRequest(
        request_id="req_1",
        received=0.0,
        route="responses",
        total=4.0,
        phases={"queue": 3.5, "decode": 0.5},
        prompt_tokens=1180,
        cached_tokens=1024,
        outcome="stop",
    )
    row = row_of(request, 8.0)
    assert (row["total"], row["longest phase"]) == ("4.00 s", "queue 3.50 s")
    assert row["prompt (cached)"] == "1,180 (1,024)"
    assert row["outcome"] == "stop"


def test_an_empty_list_says_what_may_find_one() -> None:
    query = {"state": "ended", "since": "5m", "key": "", "outcome": "", "route": "", "phase": ""}
    assert nothing_matches(query) == ("There was no request in the last 5m. Choose a longer time.")
    assert nothing_matches({**query, "key": "bob", "phase": "queue"}) == (
        "No request of the last 5m matches. Choose a longer time, or clear a filter (key, phase)."
    )
    live = {**query, "state": "live"}
    assert nothing_matches(live) == "No request is being served now."
    assert nothing_matches({**live, "key": "x"}).endswith("Clear a filter (key).")


def test_a_live_one_says_its_phase() -> None:
    request = KeptRequest(request_id="r", received=0.0, route="x", live=True, phase="decode")
    assert row_of(request, 0.0)["outcome"] == "decode"
