"""What is kept of a request are the facts of its record, the same as in log line and spans."""

from __future__ import annotations

import time

import pytest

from engine.messages import PrefixMiss, PrefixMissReason
from observability.admin_api import EventKind, Prefill
from observability.phases import DECODING
from service.engine.happenings import Happening, LongStep
from service.generation.request import MessagePlace
from service.records.kept import MOST_EVENTS, current_phase, ended_request, live_request
from service.telemetry.phases import seconds_of
from service.telemetry.record import Flush, Interval, RequestRecord
from service.telemetry.requests import Telemetry, log_fields
from tests.service.request_records import answered, sequence, started


@pytest.fixture
def record() -> RequestRecord:
    return answered(Telemetry(["m"], version="1"))


def test_durations_and_counts_are_those_of_the_log_line(record: RequestRecord) -> None:
    seconds = seconds_of(record)
    kept, line = ended_request(record, seconds), log_fields(record, seconds)
    assert kept.received == 5.0
    assert kept.ended == 5.1
    for field in ("ttft", "itl_mean", "total", "other"):
        assert getattr(kept, field) == pytest.approx(line[f"{field}_ms"] / 1e3)
    for phase, spent in kept.phases.items():
        assert spent == pytest.approx(line[f"{phase}_ms"] / 1e3)
    same = ("request_id", "trace_id", "key", "route", "outcome", "model", "prompt_tokens")
    for field in (*same, "cached_tokens", "output_tokens", "preemptions", "handovers", "status"):
        assert getattr(kept, field) == line[field]
    assert sum(kept.phases.values()) + kept.other >= kept.total


def test_a_write_that_still_waits_counts_in_a_live_record(record: RequestRecord) -> None:
    record.flush.seconds, record.flush.waits = 0.5, [(0.5, 1000.0)]
    record.flush.waiting_since = time.monotonic() - 20
    kept = live_request(record)
    assert 20.5 < kept.phases["flush"] < 60
    assert max(one.value for one in kept.events if one.kind is EventKind.STALLED) > 20
    assert record.flush.seconds == 0.5
    assert record.flush.longest == [(1000.0, 0.5)]


def test_the_longest_gap_is_not_below_the_mean(record: RequestRecord) -> None:
    """Two clocks measure them: with a single gap, they differ by the way from the engine."""
    record.itl_max = 1e-6
    kept = ended_request(record, seconds_of(record))
    assert kept.itl_mean is not None
    assert kept.itl_max == kept.itl_mean


def test_a_prefix_report_names_the_message(record: RequestRecord) -> None:
    assert ended_request(record, {}).prefix is None
    record.prefix_miss = PrefixMiss(PrefixMissReason.DIVERGED, "req_55")
    record.miss_place = MessagePlace(3, 7, "tool", last=5)
    report = ended_request(record, {}).prefix
    assert report is not None
    assert (report.matched, report.of, report.stopped) == (16, 20, "diverged")
    assert (report.request_id, report.at_message, report.messages) == ("req_55", 3, 7)
    assert (report.role, report.to_message) == ("tool", 5)


def test_events_are_in_order_of_time_with_their_choices(record: RequestRecord) -> None:
    record.choices_happenings = [
        (0, Happening(EventKind.OUTPUT, 1000.04, 1)),
        (1, Happening(EventKind.GAP, 1000.03, 0.01)),
    ]
    record.happenings = [Happening(EventKind.CANCELLED, 1000.05)]
    record.flush = Flush()
    record.flush.waited(1000.01, 1000.02)
    events = ended_request(record, {}).events
    assert [(event.kind, round(event.at, 6), round(event.value, 6)) for event in events] == [
        (EventKind.STALLED, 0.01, 0.01),
        (EventKind.GAP, 0.03, 0.01),
        (EventKind.OUTPUT, 0.04, 1.0),
        (EventKind.CANCELLED, 0.05, 0.0),
    ]
    assert [event.choice for event in events] == [0, 1, 0, 0]


def test_of_too_many_events_the_shortest_gaps_are_left_out(record: RequestRecord) -> None:
    record.choices_happenings = [
        *((0, Happening(EventKind.GAP, 1000 + at / 100, at / 100)) for at in range(MOST_EVENTS)),
        (0, Happening(EventKind.OUTPUT, 1001.0, 1)),
        (0, Happening(EventKind.PREEMPTED, 1001.1)),
    ]
    events = ended_request(record, {}).events
    assert len(events) == MOST_EVENTS
    assert [event.kind for event in events[-2:]] == [EventKind.OUTPUT, EventKind.PREEMPTED]
    assert min(event.value for event in events if event.kind is EventKind.GAP) == 0.02


def test_neighbours_are_the_longest_steps_of_all_choices(record: RequestRecord) -> None:
    steps = [LongStep(1000.0 + n, n / 10, n, 2, (Prefill("req_2", n),)) for n in range(1, 6)]
    record.longest_steps = [*steps[1:4], *steps[2:5]]
    neighbours = ended_request(record, {}).neighbours
    assert [(one.at, one.seconds) for one in neighbours] == [(5.0, 0.5), (4.0, 0.4), (3.0, 0.3)]
    assert neighbours[0].prefills == (Prefill("req_2", 5),)


def test_a_live_request_says_in_which_phase_it_is() -> None:
    telemetry = Telemetry(["m"], version="1")
    record = started(telemetry)
    assert current_phase(record) == "receive"
    record.received_body()
    assert current_phase(record) == "admit"
    record.preparing = Reached(Interval("tokenize", 0.0, 0.0))
    assert current_phase(record) == "tokenize"
    none = {"first_scheduled_time": None, "first_token_time": None, "last_token_time": None}
    record.sequences = [sequence(**none)]
    assert current_phase(record) == "queue"
    record.sequences = [sequence(**{**none, "first_scheduled_time": 1000.01})]
    assert current_phase(record) == "prefill"
    record.sequences = [sequence()]
    assert current_phase(record) == DECODING.name
    record.is_generated = True
    assert current_phase(record) == "flush"


class Reached:
    def __init__(self, reached: Interval) -> None:
        self.reached = reached


def test_a_live_request_is_brought_up_to_date_when_it_is_looked_at() -> None:
    record = started(Telemetry(["m"], version="1"), received_time=time.monotonic() - 2)

    def update() -> None:
        record.output_tokens, record.prompt_tokens_computed = 5, 17

    record.update = update
    kept = live_request(record)
    assert (kept.output_tokens, kept.prompt_tokens_computed, kept.live) == (5, 17, True)
    assert kept.total >= 2
    assert kept.ended is None
