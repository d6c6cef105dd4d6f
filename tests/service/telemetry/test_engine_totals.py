"""The engine's counters across restarts of worker, engine, and both."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.messages import Heartbeat, StepOutputs, StepPhase
from observability import catalogue, ledger, series
from observability.combined import Shared
from service.engine.link import EngineState, LinkPhase
from service.telemetry import engine_totals, requests
from service.telemetry.engine_totals import EngineTotals, engine_identities, engine_total
from service.telemetry.requests import Telemetry
from tests.observability.kills import states_between_lines
from tests.service.telemetry.successors import successor
from tests.service.telemetry.watched import READY, stats


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "OPEN_REQUEST_ROWS", 1)


def hears(telemetry: Telemetry, identity: int, generated: int | None = None) -> None:
    """The link connects to an engine, which reports what it has generated."""
    ready = msgspec.structs.replace(READY, identity=identity)
    telemetry.on_state(EngineState(LinkPhase.READY, "ready", ready))
    if generated is not None:
        telemetry.on_step(Heartbeat(stats(tokens_generated=generated)))


def shown(telemetry: Telemetry) -> float | None:
    telemetry.exposition(None)
    return telemetry.metrics.sample(catalogue.GENERATED_TOKENS, {"model": "m"})


def test_the_first_worker_of_a_server_knows_that_nothing_was_generated(tmp_path: Path) -> None:
    assert shown(successor(tmp_path / "ledger")) == 0


def test_a_new_worker_shows_what_was_and_then_what_the_same_engine_has_done(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    hears(successor(path), 7, generated=100)
    after = successor(path)
    assert shown(after) == 100
    hears(after, 7)
    assert shown(after) == 100
    hears(after, 7, generated=130)  # thirty of them while there was no worker
    assert shown(after) == 130


def test_a_new_engine_adds_to_what_the_ones_before_did(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    before = successor(path)
    hears(before, 7, generated=100)
    hears(before, 8)
    assert shown(before) == 100
    hears(before, 8, generated=150)  # more than the first: only its identity distinguishes them
    assert shown(before) == 250
    hears(successor(path), 9, generated=1)  # both are new
    assert shown(successor(path)) == 251


def test_without_a_readable_ledger_the_first_message_sets_the_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger"
    hears(successor(path), 7, generated=100)
    monkeypatch.setattr(requests, "OPEN_REQUEST_ROWS", 2)
    after = successor(path)
    assert shown(after) is None
    hears(after, 7, generated=130)
    assert shown(after) == 0
    hears(after, 7, generated=131)
    assert shown(after) == 1
    hears(successor(path), 8, generated=5)
    assert shown(successor(path)) == 6


def test_without_a_ledger_the_engines_own_totals_are_shown_once_they_are_known() -> None:
    alone = Telemetry(["m"], version="1")
    assert shown(alone) is None
    hears(alone, 7, generated=100)
    assert shown(alone) == 100


moves = st.lists(
    st.one_of(
        st.just("worker dies"),
        st.just("engine dies"),
        st.just("both die"),
        st.integers(0, 50),  # tokens generated, and a message about it
    ),
    max_size=12,
)


@given(moves)
@settings(max_examples=25, deadline=None)
def test_whatever_dies_the_counter_is_what_engines_reported(made: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "ledger"
        subject, identity, own, total = successor(path), 1, 0, 0
        hears(subject, identity)
        for move in made:
            if isinstance(move, int):
                own, total = own + move, total + move
                subject.on_step(Heartbeat(stats(tokens_generated=own)))
            else:
                if move != "worker dies":
                    identity, own = identity + 1, 0
                if move != "engine dies":
                    subject = successor(path)
                    assert shown(subject) == total
                hears(subject, identity)
            assert shown(subject) == total


def test_wherever_a_kill_cuts_the_change_of_engines_nothing_is_counted_twice(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger"
    before = successor(path)
    hears(before, 7, generated=100)

    def work() -> None:
        hears(before, 8, generated=20)

    states = states_between_lines(work, path.read_bytes, ledger, series, engine_totals)
    assert len(states) > 5
    for state in states:
        path.write_bytes(state)
        after = successor(path)
        assert shown(after) in (100, 120)
        hears(after, 8, generated=20)
        assert shown(after) == 120


STEP = StepOutputs(
    time=1.0,
    handles=b"",
    token_ids=b"",
    phase=StepPhase.DECODE,
    step_seconds=0.01,
    step_tokens=3,
    step_sequences=1,
    stats=stats(),
)


# --- several workers ------------------------------------------------------------------------------


def one_of(directory: Path, index: int, *, leads: bool, engines: int = 1) -> Telemetry:
    """A worker of three; it continues the one of this index before it."""

    def opened(name: str) -> int:
        return os.open(directory / name, os.O_RDWR | os.O_CREAT)

    shared = Shared(
        ledgers=[opened(f"ledger-{other}") for other in range(3) if other != index],
        engines=engines,
        engine_ledger=opened("engines"),
    )
    own = opened(f"ledger-{index}")
    return Telemetry(["m"], version="1", ledger_descriptor=own, shared=shared, leads=leads)


def test_all_workers_hear_an_engine_and_it_counts_once(tmp_path: Path) -> None:
    workers = [one_of(tmp_path, index, leads=index == 0) for index in range(3)]
    for worker in workers:
        hears(worker, 7, generated=100)
    assert [shown(worker) for worker in workers] == [100, 100, 100]


def test_the_next_lead_neither_loses_nor_doubles(tmp_path: Path) -> None:
    one, other = one_of(tmp_path, 0, leads=True), one_of(tmp_path, 1, leads=False)
    for worker in (one, other):
        hears(worker, 7, generated=100)
    other.on_step(Heartbeat(stats(tokens_generated=130)))  # then the lead dies
    assert shown(other) == 100
    other.lead()
    assert shown(other) == 130
    hears(other, 8, generated=5)
    assert shown(other) == 135
    back = one_of(tmp_path, 0, leads=False)
    hears(back, 8, generated=6)
    assert shown(back) == 135
    other.on_step(Heartbeat(stats(tokens_generated=6)))
    assert shown(back) == 136


def test_a_lead_that_still_reads_of_an_earlier_process_does_not_count_it_again(
    tmp_path: Path,
) -> None:
    one, other = one_of(tmp_path, 0, leads=True), one_of(tmp_path, 1, leads=False)
    for worker in (one, other):
        hears(worker, 7, generated=100)
    hears(one, 8, generated=10)  # and dies, before the other reads that 7 is gone
    other.lead()
    other.on_step(Heartbeat(stats(tokens_generated=100)))
    assert shown(other) == 110
    hears(other, 8, generated=12)
    assert shown(other) == 112


def test_each_step_is_counted_by_the_lead(tmp_path: Path) -> None:
    one, other = one_of(tmp_path, 0, leads=True), one_of(tmp_path, 1, leads=False)
    for worker in (one, other):
        hears(worker, 7)
        worker.on_step(STEP)
    other.lead()
    other.on_step(STEP)
    other.exposition(None)
    assert other.metrics.sample(catalogue.STEP_TOKENS, {"model": "m"}, "_sum") == 6


def test_the_totals_of_several_engines_add_up(tmp_path: Path) -> None:
    telemetry = one_of(tmp_path, 0, leads=True, engines=2)
    totals = EngineTotals(telemetry.metrics)
    for engine, generated in ((0, 10), (1, 200)):
        totals.engine_is(engine + 5, engine)
        totals.heard(stats(tokens_generated=generated), engine)
    totals.engine_is(9, 1)  # the second one is replaced
    totals.heard(stats(tokens_generated=3), 1)
    totals.publish()
    name = catalogue.GENERATED_TOKENS
    assert telemetry.metrics.sample(name, {"model": "m"}) == 213
    assert engine_identities(telemetry.metrics.engine_ledger) == (5, 9)
    assert engine_total(telemetry.metrics.engine_ledger, "tokens_generated") == 213
