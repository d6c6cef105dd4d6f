"""The phases account for the whole of a request."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.telemetry.phases import before_engine, in_engine, other_seconds, seconds_of
from service.telemetry.record import Flush, Interval, RequestRecord, add_interval
from service.telemetry.requests import Telemetry
from tests.service.request_records import answered, sequence

ENDED = 1000.1


def record(**changes: Any) -> RequestRecord:
    return answered(Telemetry(["m"], version="1"), **changes)


def other(subject: RequestRecord) -> float:
    return other_seconds(subject, seconds_of(subject), ENDED)


def test_phases_and_what_is_left_are_the_whole_time() -> None:
    subject = record(flush=Flush())
    assert sum(seconds_of(subject).values()) + other(subject) == pytest.approx(0.1)


def test_only_writes_after_the_last_token_took_time_of_their_own() -> None:
    beside = record(flush=Flush(0.02, 1000.05, 1000.09))
    assert other(beside) == pytest.approx(0.01)
    after = record(flush=Flush(0.02, 1000.05, 1000.097))
    assert other(after) == pytest.approx(0.003)
    assert seconds_of(after)["flush"] == 0.02


@given(
    st.lists(st.floats(0, 0.09), min_size=4, max_size=12).map(sorted),
    st.lists(st.sampled_from(["render", "tokenize"]), min_size=8, max_size=8),
    st.sampled_from(["finished", "queued", "prefilled", "refused"]),
)
def test_however_often_a_prompt_is_made_the_sum_is_the_whole(
    moments: list[float], kinds: list[str], end: str
) -> None:
    begin, *inner = (1000 + moment for moment in moments)
    intervals = [Interval("receive", 1000.0, begin)]
    for kind, start, stop in zip(kinds, inner[::2], inner[1::2], strict=False):
        add_interval(intervals, Interval(kind, start, stop))
    times: dict[str, dict[str, Any]] = {
        "finished": {"last_token_time": ENDED},
        "prefilled": {"first_token_time": None, "last_token_time": None},
        "queued": {
            "first_scheduled_time": None,
            "first_token_time": None,
            "last_token_time": None,
        },
    }
    engine = {
        "queued_time": 1000.091,
        "first_scheduled_time": 1000.092,
        "first_token_time": 1000.093,
        "finished_time": ENDED,
    }
    refused = end == "refused"
    subject = record(
        intervals=intervals,
        sequences=[] if refused else [sequence(**{**engine, **times[end]})],
        prepared_time=ENDED,
        last_token_time=None if refused else ENDED,
        flush=Flush(),
    )
    assert sum(seconds_of(subject).values()) == pytest.approx(0.1)
    assert other(subject) == pytest.approx(0, abs=1e-6)
    spans = before_engine(subject)
    spans += [] if refused else in_engine(subject.sequences[0])
    assert spans[0].begin == 1000
    for before, after in itertools.pairwise(spans):
        assert math.isclose(before.end, after.begin) or before.phase == after.phase


def test_a_prompt_made_endlessly_often_takes_bounded_room() -> None:
    intervals: list[Interval] = []
    for moment in range(10_000):
        phase = "render" if moment % 2 else "tokenize"
        add_interval(intervals, Interval(phase, moment, moment + 1))
    assert len(intervals) == 64


def test_a_short_write_has_waited_for_nobody() -> None:
    flush = Flush()
    flush.waited(1.0, 1.0005)
    assert flush == Flush()
    flush.waited(2.0, 2.5)
    flush.waited(7.0, 7.5)
    assert flush == Flush(1.0, 2.0, 7.5, [(0.5, 2.0), (0.5, 7.0)])
    assert flush.longest == [(2.0, 0.5), (7.0, 0.5)]


def test_clocks_that_differ_a_little_make_no_negative_phase() -> None:
    early = sequence(queued_time=1000.0101, first_scheduled_time=1000.01)
    assert seconds_of(record(sequences=[early]))["queue"] == 0
