"""What several workers answer, joined."""

from __future__ import annotations

import random
from typing import Any

import pytest

from observability.admin_api import Condition, KeptRequest, Overview, RequestQuery
from service.admin.joining import joined_overview, joined_rows
from service.admin.part_messages import OverviewPart, RowsPart
from service.overview.diagnose import describe
from service.overview.overviews import FIVE_MINUTES, MINUTE
from service.overview.snapshot import Snapshot
from service.records.ordering import QueryError
from service.records.recent import RecentlyEnded
from service.records.records import Records
from service.records.row import row_of
from tests.service.admin.overview_at_hand import overview

NOW = 1_800_000_000.0


def kept(number: int, **fields: Any) -> KeptRequest:
    given = {"received": NOW + number, "ended": NOW + number + 1, "total": 1.0, **fields}
    return KeptRequest(request_id=f"req_{number:04}", route="completions", outcome="stop", **given)


def part(
    condition: Condition = Condition.HEALTHY, held: dict[str, int] | None = None, **seen: Any
) -> OverviewPart:
    """``seen``: of the snapshot, and of the overview what both have."""
    windows = [RecentlyEnded(float(seconds)).values(NOW) for seconds in (MINUTE, FIVE_MINUTES)]
    shown = {name: seen[name] for name in seen if name in Overview.__struct_fields__}
    snapshot = Snapshot(**{"engine": "ok", **seen})
    verdict = describe(condition, snapshot)
    return OverviewPart(overview(**shown, verdict=verdict), snapshot, held or {}, *windows)


def test_what_is_each_workers_own_is_added_and_what_is_shared_is_not() -> None:
    parts = [
        part(waiting=2, running=7, oldest_waiting=1.0),
        part(waiting=3, running=7, oldest_waiting=4.0),
    ]
    for each, reasons in zip(parts, ({"slots": 2}, {"slots": 1, "budget": 2}), strict=True):
        each.overview.waiting_by_reason.update(reasons)
    joined = joined_overview(parts, (3,))
    assert joined.waiting == 5
    assert joined.waiting_by_reason == {"slots": 3, "budget": 2}
    assert joined.running == 7
    assert joined.oldest_waiting == 4.0
    assert joined.missing_workers == (3,)


@pytest.mark.parametrize(
    ("conditions", "shown"),
    [
        ((Condition.HEALTHY, Condition.KV), Condition.KV),
        ((Condition.IDLE, Condition.HEALTHY), Condition.HEALTHY),
        ((Condition.IDLE, Condition.IDLE), Condition.IDLE),
        ((Condition.FRONTEND, Condition.SLOTS), Condition.SLOTS),
    ],
)
def test_the_most_urgent_verdict_is_shown(
    conditions: tuple[Condition, ...], shown: Condition
) -> None:
    parts = [part(condition) for condition in conditions]
    for order in (parts, parts[::-1]):
        assert joined_overview(order, ()).verdict.condition is shown


@pytest.mark.parametrize(
    ("conditions", "seen", "sentence"),
    [
        (
            (Condition.DRAINING, Condition.DRAINING),
            ({"in_flight": 3}, {"in_flight": 1}),
            "Draining: 4 requests in flight; no new ones are accepted.",
        ),
        (
            (Condition.SILENT, Condition.HEALTHY),  # not noticed by both at the same moment
            ({"sequences": 4, "silence": 5.0}, {"sequences": 3, "silence": 4.9}),
            "Engine silent for 5.0 s with 7 sequences in flight.",
        ),
        (
            (Condition.LOADING, Condition.LOADING),
            ({"sequences": 22, "detail": "gone"}, {"sequences": 8, "detail": "gone"}),
            "No engine yet: gone. 30 sequences in flight.",
        ),
        (
            (Condition.SLOTS, Condition.HEALTHY),
            (
                {"running": 4, "max_running": 4, "waiting": 5, "oldest_waiting": 2.0},
                {"running": 4, "max_running": 4, "waiting": 1, "oldest_waiting": 0.1},
            ),
            "Slots: 4 of 4 are taken, 6 waiting (oldest 2.0 s).",
        ),
    ],
)
def test_the_verdict_has_the_figures_of_all_workers(
    conditions: tuple[Condition, ...], seen: tuple[dict[str, Any], ...], sentence: str
) -> None:
    parts = [part(one, **each) for one, each in zip(conditions, seen, strict=True)]
    for order in (parts, parts[::-1]):
        assert joined_overview(order, ()).verdict.sentence == sentence


def test_the_largest_holder_holds_most_at_all_workers_together() -> None:
    parts = [
        part(Condition.KV, held={"ann": 100}, kv_active=9, kv_blocks=10),
        part(Condition.KV, held={"bob": 700, "ann": 200}, kv_active=9, kv_blocks=10),
    ]
    for order in (parts, parts[::-1]):
        joined = joined_overview(order, ())
        assert (joined.largest_holder, joined.largest_holder_share) == ("bob", 0.7)
        assert joined.verdict.sentence.endswith("Largest holder: bob, 70 %.")


async def pages(workers: list[Records], query: RequestQuery) -> list[str]:
    """All ids of a query, page by page."""
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        asked = RequestQuery(
            sort=query.sort, limit=query.limit, cursor=cursor or None, since=query.since
        )
        parts = []
        for records in workers:
            rows, following = await records.rows(asked)
            parts.append(RowsPart(rows, following, is_complete=True))
        page = joined_rows(asked, parts)
        assert len(page.rows) <= query.limit
        found += [row.request_id for row in page.rows]
        cursor = page.cursor
    return found


@pytest.mark.parametrize("sort", ["-received", "ended", "ttft", "-ttft", "-total"])
@pytest.mark.parametrize("limit", [1, 3, 7, 100])
async def test_pages_are_those_of_one_worker_with_all_requests(sort: str, limit: int) -> None:
    chance = random.Random(f"{sort}{limit}")
    one, several = Records(), [Records() for _ in range(3)]
    for number in range(40):
        request = kept(
            number,
            ttft=chance.choice([None, 0.5, chance.random()]),
            total=chance.choice([1.0, 2.0]),
        )
        row = row_of(request)
        one._keep(row)
        chance.choice(several)._keep(row)
    query = RequestQuery(sort=sort, limit=limit)
    ids = await pages(several, query)
    assert ids == await pages([one], query)
    assert len(ids) == 40


def test_a_request_that_two_workers_know_is_shown_once() -> None:
    row = row_of(kept(1))
    query = RequestQuery()
    parts = [RowsPart([row], None, is_complete=True), RowsPart([row], None, is_complete=False)]
    joined = joined_rows(query, parts)
    assert [one.request_id for one in joined.rows] == [row.request_id]
    assert not joined.is_complete
    with pytest.raises(QueryError):
        joined_rows(RequestQuery(sort="colour"), parts)
