"""Joins the answers of a server's workers, each of which knows only its own requests. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from observability.admin_api import Condition, Overview, RequestQuery, Window
from service.admin.part_messages import OverviewPart, RowsPart
from service.overview.diagnose import describe
from service.overview.joined_snapshot import joined_held, joined_snapshot, largest_holder
from service.records.ordering import Ordering
from service.records.recent import WindowValues, joined_window

_URGENCY = {condition: number for number, condition in enumerate(Condition)}


def joined_overview(parts: Sequence[OverviewPart], missing: tuple[int, ...]) -> Overview:
    """Return the first part's overview with what the others add. All see the same engine and the
    same history; waiting and ended requests are each worker's own. The verdict is the most urgent
    one, said with the figures of all."""
    overviews = [part.overview for part in parts]
    own = overviews[0]
    reasons: Counter[str] = Counter()
    for one in overviews:
        reasons.update(one.waiting_by_reason)
    urgent = min(parts, key=_urgency)
    holder, share = largest_holder(joined_held([part.held for part in parts]))
    snapshot = msgspec.structs.replace(
        joined_snapshot([part.snapshot for part in parts], urgent.snapshot),
        largest_holder=holder,
        largest_holder_share=share,
    )
    verdict = urgent.overview.verdict
    return msgspec.structs.replace(
        own,
        state=urgent.overview.state,
        verdict=msgspec.structs.replace(describe(verdict.condition, snapshot), since=verdict.since),
        waiting=snapshot.waiting,
        waiting_by_reason=dict(reasons),
        oldest_waiting=snapshot.oldest_waiting,
        predicted_wait=snapshot.predicted_wait,
        silence=snapshot.silence,
        longest_gap=snapshot.longest_gap,
        minute=_joined_window(own.minute, [part.minute for part in parts], own.slo),
        five_minutes=_joined_window(
            own.five_minutes, [part.five_minutes for part in parts], own.slo
        ),
        largest_holder=holder,
        largest_holder_share=share,
        missing_workers=missing,
    )


def _urgency(one: OverviewPart) -> tuple[int, float]:
    """Return the place of its condition and since when it holds; a worker without requests says
    nothing of the others."""
    verdict = one.overview.verdict
    if verdict.condition is Condition.IDLE:
        return len(_URGENCY), verdict.since
    return _URGENCY[verdict.condition], verdict.since


def _joined_window(own: Window, parts: Sequence[WindowValues], slo: dict[str, float]) -> Window:
    """Return a window whose rates, which the workers have in common, are ``own``'s."""
    joined = joined_window(own.seconds, parts, slo)
    return msgspec.structs.replace(
        own,
        ended=joined.ended,
        ttft=joined.ttft,
        itl=joined.itl,
        total=joined.total,
        attainment=joined.attainment,
    )


def joined_rows(query: RequestQuery, parts: Sequence[RowsPart]) -> RowsPart:
    """Return the page of the query over all parts, which are pages of the same query.

    Raises QueryError.
    """
    if len(parts) == 1:
        return parts[0]
    ordering = Ordering.of(query)
    keyed = {
        row.request_id: (ordering.key(getattr(row, ordering.field), row.request_id), row)
        for part in parts
        for row in part.rows
    }
    page = sorted(keyed.values(), key=lambda one: one[0])
    has_more = len(page) > ordering.limit or any(part.cursor is not None for part in parts)
    page = page[: ordering.limit]
    cursor = ordering.cursor(page[-1][0]) if has_more and page else None
    return RowsPart([row for _, row in page], cursor, all(part.is_complete for part in parts))
