"""What is kept of requests is found by id, filtered and sorted as a naive search would do it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from observability.admin_api import SORTABLE, KeptRequest, RequestPage, RequestQuery
from observability.outcomes import group_of
from service.records.records import Records
from service.records.row import Row
from service.telemetry.requests import CUT_OUTCOME, Telemetry
from tests.examples import examples
from tests.service.request_records import answered, started


def keeping(**limits: Any) -> tuple[Records, Telemetry]:
    records = Records(**limits)
    return records, Telemetry(["m"], version="1", records=records)


def served(telemetry: Telemetry, number: int, **changes: Any) -> None:
    telemetry.request_finished(answered(telemetry, request_id=f"req_{number:03}", **changes))


def test_a_request_is_found_by_its_ids_while_it_runs_and_afterwards() -> None:
    records, telemetry = keeping()
    record = answered(telemetry, ended_time=None, received_time=time.monotonic() - 1)
    for identity in (record.request_id, record.trace_id):
        found = records.find(identity)
        assert found is not None
        assert (found.live, found.request_id, found.ended) == (True, "req_1", None)
        assert found.total >= 1
    telemetry.request_finished(record)
    for identity in (record.request_id, record.trace_id):
        found = records.find(identity)
        assert found is not None
        assert (found.live, found.outcome, found.output_tokens) == (False, "stop", 11)
    assert records.find("req_2") is None
    assert (len(records.live), len(records)) == (0, 1)


def test_what_is_kept_is_bounded_in_number_and_bytes() -> None:
    records, telemetry = keeping(most=3)
    for number in range(5):
        served(telemetry, number)
    assert [records.find(f"req_{number:03}") is not None for number in range(5)] == [
        *(False, False),
        *(True, True, True),
    ]
    size = records.bytes // 3
    small, telemetry = keeping(most_bytes=2 * size + size // 2)
    for number in range(5):
        served(telemetry, number)
    assert len(small) == 2
    assert small.bytes <= 2 * size + size // 2


def test_a_request_cut_by_a_killed_worker_is_kept() -> None:
    _, telemetry = keeping()
    record = started(telemetry, model="m")
    cut, following = keeping()
    row = following.open_requests.insert(b"")
    assert row is not None
    following.end_cut_request(record, row)
    found = cut.find("req_1")
    assert found is not None
    assert (found.outcome, found.live) == (CUT_OUTCOME, False)
    heard: list[Row] = []
    cut.on_ended(heard.append, also_kept=True)
    assert [one.outcome for one in heard] == [CUT_OUTCOME]


def test_listeners_get_each_ended_request_until_they_leave() -> None:
    records, telemetry = keeping()
    heard: list[str] = []

    def fails(_: Row) -> None:
        raise ValueError("a listener's defect")

    records.on_ended(fails)
    leave = records.on_ended(lambda one: heard.append(one.request_id))
    served(telemetry, 1)
    leave()
    served(telemetry, 2)
    assert heard == ["req_001"]
    assert len(records) == 2


def test_live_requests_come_slowest_first() -> None:
    records, telemetry = keeping()
    for number in range(5):
        started(telemetry, request_id=f"req_{number}", received_time=1000.0 + number)
    slowest = records.slowest_live(3)
    assert [one.request_id for one in slowest] == ["req_0", "req_1", "req_2"]
    assert slowest[0].phase == "receive"


def test_windows_are_exact_and_few() -> None:
    records, telemetry = keeping(clock=lambda: 10.0)
    served(telemetry, 1)
    window = records.window(60.0, {"ttft": 0.05, "itl": 0.001})
    assert (window.ttft.p50, window.itl.p50, window.total.p99) == (0.041, 0.005, 0.1)
    assert window.attainment == {"ttft": 1.0, "itl": 0.0}
    for seconds in (1.0, 2.0, 3.0):
        records.window(seconds)
    with pytest.raises(ValueError, match="more than 4"):
        records.window(4.0)


# --- queries against a naive search ---------------------------------------------------------------

_requests = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from([None, "alice", "bob"]),
            "outcome": st.sampled_from(["stop", "length", "client_gone", "error:engine"]),
            "ended_time": st.sampled_from([1000.1, 1000.2, 1000.3]),
            "first_token_time": st.sampled_from([None, 1000.041, 1000.05]),
            "prompt_tokens": st.integers(0, 3),
        }
    ),
    max_size=25,
)
_queries = st.fixed_dictionaries(
    {
        "key": st.sampled_from([None, None, "alice"]),
        "outcome": st.sampled_from([None, None, "stop", "answered", "failed"]),
        "min_seconds": st.sampled_from([0.0, 0.15]),
        "since": st.sampled_from([None, 5.2]),
        "until": st.sampled_from([None, 5.25]),
        "sort": st.sampled_from([f"{sign}{name}" for name in SORTABLE for sign in ("", "-")]),
        "limit": st.integers(1, 7),
    }
)


@settings(max_examples=examples(150), deadline=None)
@given(_requests, _queries)
def test_all_pages_together_are_what_a_naive_search_finds(
    requests: list[dict[str, Any]], asked: dict[str, Any]
) -> None:
    records, telemetry = keeping()
    everything: list[KeptRequest] = []
    records.on_ended(lambda row: everything.append(row.request()))
    for number, request in enumerate(requests):
        served(telemetry, number, **request)
    query = RequestQuery(**asked)
    found: list[KeptRequest] = []
    cursor: str | None = None
    while True:
        page = asyncio.run(records.query(RequestQuery(**asked, cursor=cursor)))
        assert len(page.requests) <= query.limit
        found += page.requests
        cursor = page.cursor
        if cursor is None:
            break
        assert len(page.requests) == query.limit
    expected = [one for one in everything if selected(one, query)]
    assert found == sorted(expected, key=naive_order(query.sort))


def selected(one: KeptRequest, query: RequestQuery) -> bool:
    assert one.ended is not None
    outcome = query.outcome
    return (
        (query.key is None or one.key == query.key)
        and (outcome is None or outcome in (one.outcome, group_of(one.outcome).name.lower()))
        and one.total >= query.min_seconds
        and (query.since is None or one.ended >= query.since)
        and (query.until is None or one.ended < query.until)
    )


def naive_order(sort: str) -> Callable[[KeptRequest], tuple[bool, float, str]]:
    name, sign = sort.removeprefix("-"), -1 if sort.startswith("-") else 1

    def order(one: KeptRequest) -> tuple[bool, float, str]:
        value = getattr(one, name)
        return value is None, sign * (value or 0), one.request_id

    return order


def test_a_query_lets_other_tasks_run_between_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.turns._TURN_SECONDS", 0.0)  # each piece takes longer
    records, telemetry = keeping()
    for number in range(1200):
        served(telemetry, number)

    async def query() -> tuple[RequestPage, int]:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        page = await records.query(RequestQuery(sort="-total", limit=200))
        task.cancel()
        return page, turns

    page, turns = asyncio.run(query())
    assert len(page.requests) == 200
    assert turns >= 1200 // 500 + 200 // 50


def test_live_requests_are_filtered_and_sorted_too() -> None:
    records, telemetry = keeping()
    for number in range(60):
        started(
            telemetry,
            request_id=f"req_{number:03}",
            received_wall_ns=number * 10**9,
            key="bob" if number % 2 else None,
        )
    query = RequestQuery(live=True, key="bob", phase="receive", sort="-received", limit=2)
    page = asyncio.run(records.query(query))
    assert [one.request_id for one in page.requests] == ["req_059", "req_057"]
    assert page.cursor is not None
