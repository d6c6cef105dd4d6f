"""A row has what queries look at, and the whole request encoded."""

from __future__ import annotations

import gc

from observability.admin_api import EventKind, PrefixReport, RequestEvent
from service.records.row import longest_phase, row_of
from tests.service.records.keeping import kept, row


def test_a_row_gives_back_the_request_that_it_was_made_of() -> None:
    request = kept(
        7,
        events=(RequestEvent(EventKind.OUTPUT, 0.5, 1.0),),
        prefix=PrefixReport(16, 32, "diverged", "req_1", at_message=2, messages=3, role="tool"),
        ttft=0.5,
    )
    made = row_of(request)
    assert made.request() == request
    assert (made.ttft, made.phase, made.outcome) == (0.5, "decode", "stop")
    assert made.size > len(made.encoded)


def test_a_live_row_has_the_current_phase_and_an_ended_one_the_longest() -> None:
    assert row(1, live=True, phase="queue").phase == "queue"
    assert longest_phase({"queue": 0.3, "decode": 0.2}) == "queue"
    assert longest_phase({}) is None


def test_the_garbage_collector_does_not_look_at_rows() -> None:
    assert not gc.is_tracked(row(1))
