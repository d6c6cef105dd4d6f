"""What several workers answer, joined."""

from __future__ import annotations

import random
from typing import Any

import pytest

from observability.admin_api import Condition, KeptRequest, RequestQuery, Verdict
from service.admin.joining import joined_overview, joined_rows
from service.admin.part_messages import OverviewPart, RowsPart
from service.overview.overviews import FIVE_MINUTES, MINUTE
from service.records.ordering import QueryError
from service.records.recent import RecentlyEnded
from service.records.records import Records
from service.records.row import row_of
from tests.service.admin.overview_at_hand import overview

NOW = 1_800_000_000.0


def kept(number: int, **fields: Any) -> KeptRequest:
    given = {"received": NOW + number, "ended": NOW + number + 1, "total": 1.0, **fields}
    return KeptRequest(request_id=f"req_{number:04}", route="completions", outcome="stop", **given)


def part(**changes: Any) -> OverviewPart:
    windows = [RecentlyEnded(float(seconds)).values(NOW) for seconds in (MINUTE, FIVE_MINUTES)]
    return OverviewPart(overview(**changes), *windows)


def test_what_is_each_workers_own_is_added_and_what_is_shared_is_not() -> None:
    parts = [
        part(waiting=2, waiting_by_reason={"slots": 2}, running=7, oldest_waiting=1.0),
        part(waiting=3, waiting_by_reason={"slots": 1, "budget": 2}, running=7, oldest_waiting=4.0),
    ]
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
    parts = [part(verdict=Verdict(condition, condition.value)) for condition in conditions]
    for order in (parts, parts[::-1]):
        assert joined_overview(order, ()).verdict.condition is shown


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
