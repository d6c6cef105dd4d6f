"""The history's rates are the differences of the counters."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.messages import EngineStats, Heartbeat
from observability import catalogue
from observability.history import HISTORY, Sampled
from service.overview.history import LastHour
from service.overview.ring import RATES, Ring
from service.overview.sampler import SecondSampler
from service.telemetry.requests import Telemetry
from tests.examples import examples
from tests.service.request_records import answered


def row(history: LastHour) -> dict[str, Any]:
    newest = history.newest()
    assert newest is not None
    return newest


def counted(history: LastHour, name: str, first: int, last: int) -> float:
    """What a rate's seconds add up to."""
    count = last - first + 1
    number = [column.name for column in HISTORY].index(name)
    values = history.ring.column(number, first, count)
    lengths = history.ring.elapsed(first, count)
    return sum(v * e for v, e in zip(values, lengths, strict=True) if e)


def started(telemetry: Telemetry, ring: Ring | None = None) -> tuple[SecondSampler, LastHour]:
    history = LastHour(ring or Ring())
    return SecondSampler(history, telemetry.metrics, telemetry.observed), history


def test_the_first_look_has_no_rates() -> None:
    sampler, history = started(Telemetry(["m"], version="1"))
    assert sampler.sample(100.0, {}) == {}
    assert history.newest() is None


def test_a_second_has_the_rates_gauges_and_quantiles_of_what_happened_in_it() -> None:
    telemetry = Telemetry(["m"], version="1")
    sampler, history = started(telemetry)
    sampler.sample(100.0, {})
    telemetry.on_step(Heartbeat(EngineStats(tokens_generated=30, preemptions=2)))
    telemetry.observed.first_tokens.extend([0.3, 0.1, 0.2])
    telemetry.observed.gaps.extend([(0.01, 98), (0.5, 2)])
    telemetry.observed.held(0.04)
    sampler.sample(102.0 - 0.5, {"running": 3})
    found = row(history)
    assert (found["tokens_out"], found["preemptions"], found["running"]) == (20.0, 2 / 1.5, 3.0)
    assert (found["ttft_p50"], found["ttft_p95"]) == (0.2, 0.3)
    assert (found["itl_p50"], found["itl_p95"], found["itl_p99"]) == (0.01, 0.01, 0.5)
    assert (found["loop_lag"], found["step_longest"]) == (0.04, None)
    assert found["waiting"] is None
    sampler.sample(102.5, {})
    assert row(history)["ttft_p50"] is None  # nothing came in that second


def test_a_look_before_the_second_has_ended_takes_nothing_away() -> None:
    telemetry = Telemetry(["m"], version="1")
    sampler, history = started(telemetry)
    sampler.sample(100.0, {})
    telemetry.observed.first_tokens.append(0.3)
    assert sampler.sample(100.9, {}) == {}
    sampler.sample(101.0, {})
    assert row(history)["ttft_p50"] == 0.3


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.2, 7.0), st.integers(0, 1000), st.integers(0, 3)),
        min_size=1,
        max_size=40,
    )
)
def test_the_seconds_add_up_to_what_the_counters_counted(
    looks: list[tuple[float, int, int]],
) -> None:
    """Whatever the looks' distances: less than a second, or many seconds missed."""
    telemetry = Telemetry(["m"], version="1")
    sampler, history = started(telemetry)
    now, tokens, requests = 1000.0, 0, 0
    sampler.sample(now, {})
    for elapsed, more, ended in looks:
        now += elapsed
        tokens += more
        telemetry.on_step(Heartbeat(EngineStats(tokens_generated=tokens)))
        for _ in range(ended):
            record = answered(telemetry)
            telemetry.request_finished(record)
        requests += ended
        sampler.sample(now, {})
    # What came after the last whole second is in the next one.
    sampler.sample(math.floor(now) + 1.5, {})
    last = history.ring.last_slot
    assert math.isclose(counted(history, "tokens_out", 1000, last), tokens, abs_tol=1e-6)
    assert math.isclose(counted(history, "received", 1000, last), requests, abs_tol=1e-6)
    assert math.isclose(counted(history, "ended_answered", 1000, last), requests, abs_tol=1e-6)
    lengths = history.ring.elapsed(1001, last - 1000)
    assert all(lengths)
    assert math.isclose(sum(lengths), history.ring.last_time - 1000.0)


def test_the_next_worker_counts_on_and_fills_the_gap(tmp_path: Path) -> None:
    def opened(name: str) -> int:
        return os.open(tmp_path / name, os.O_RDWR | os.O_CREAT)

    def worker() -> tuple[Telemetry, SecondSampler, LastHour]:
        telemetry = Telemetry(["m"], version="1", ledger_descriptor=opened("ledger"))
        return telemetry, *started(telemetry, Ring(opened("ring")))

    telemetry, sampler, _ = worker()
    telemetry.on_step(Heartbeat(EngineStats(tokens_generated=10)))
    sampler.sample(100.0, {})
    telemetry.on_step(Heartbeat(EngineStats(tokens_generated=40)))
    sampler.sample(101.0, {})
    telemetry.on_step(Heartbeat(EngineStats(tokens_generated=50)))  # then it is killed
    again, sampler, history = worker()
    again.on_step(Heartbeat(EngineStats(tokens_generated=90)))
    assert sampler.sample(105.0, {})["tokens_out"] == 50.0
    assert counted(history, "tokens_out", 100, 105) == 80.0
    assert [history.ring.row(slot) is not None for slot in range(101, 106)] == [True] * 5


def test_without_the_ledger_of_the_worker_before_no_rate_is_made_up(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    for _ in range(2):
        telemetry = Telemetry(["m"], version="1")
        ring = Ring(os.open(path, os.O_RDWR | os.O_CREAT))
        sampler, _ = started(telemetry, ring)
        telemetry.on_step(Heartbeat(EngineStats(tokens_generated=10)))
        assert sampler.sample(100.0 + ring.starts, {}) == {}


def test_every_column_has_a_source() -> None:
    telemetry = Telemetry(["m"], version="1")
    sampler, _ = started(telemetry)
    assert set(RATES) == {one.name for one in HISTORY if one.sampled is Sampled.RATE}
    assert len(sampler.totals.read(sampler.totals.ended())) == len(RATES)
    assert set(sampler.totals.ended()) == set(catalogue.OUTCOME.values or ())
