"""Grammars are compiled once, in parallel to the engine's steps, without delaying them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from engine.constraint import constraints as constraints_module
from engine.constraint.grammar import compile_grammar
from engine.constraint.workers import Workers
from engine.messages import FinishReason
from engine.queueing import WaitingReason
from tests.engine.constraint.running import DEADLINE_SECONDS, WORD, Answer, Engine, lark, together

pytestmark = pytest.mark.integration


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No grammar compiles before this is set."""
    opened = threading.Event()

    def slow(*args: object) -> object:
        assert opened.wait(30)
        return compile_grammar(*args)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(constraints_module, "compile_grammar", slow)
    yield opened
    opened.set()


def at_a_barrier(workers: Workers) -> threading.Barrier:
    """Each of the threads waits at it once it has done its earlier tasks."""
    barrier = threading.Barrier(len(workers._threads) + 1, timeout=DEADLINE_SECONDS)
    for _ in workers._threads:
        workers.submit(lambda: barrier.wait())
    return barrier


def test_a_grammar_being_compiled_delays_no_other_sequence(
    engine: Engine, gate: threading.Event
) -> None:
    waiting = engine.submit(WORD)
    engine.core.flush()  # which says that it is queued
    assert not engine.core.has_work
    assert engine.core.stats().waiting == 1
    assert engine.core.stats().waiting_reason is WaitingReason.CONSTRAINT
    free = engine.submit(None, max_tokens=20, ignore_eos=True)
    told: dict[int, Answer] = {}
    tokens: dict[int, list[int]] = {}
    while engine.core.has_work:
        engine._note(engine.core.step()[1], tokens, told)
    assert list(told) == [free]
    gate.set()
    assert engine.run()[waiting].finished.reason is FinishReason.STOP


def test_a_grammar_that_takes_too_long_fails_its_sequence(
    engine: Engine, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.step.grammar_state.PATIENCE_SECONDS", 0.0)
    answer = engine.run_one(WORD)
    assert answer.finished.reason is FinishReason.ERROR
    assert "too long" in str(answer.finished.error)
    assert answer.finished.is_refusal


def test_the_time_of_others_compiles_does_not_count(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, opened = threading.Semaphore(0), threading.Event()

    def slow(*args: object) -> object:
        begun.release()
        assert opened.wait(30)
        return compile_grammar(*args)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(constraints_module, "compile_grammar", slow)
    crowd = [engine.submit(lark(f'start: "{word}"')) for word in "ab"]
    assert all(begun.acquire(timeout=30) for _ in crowd)  # both threads are at work
    queued = engine.submit(WORD)
    with monkeypatch.context() as impatient:
        impatient.setattr("engine.step.grammar_state.PATIENCE_SECONDS", 0.0)
        told: dict[int, Answer] = {}
        while len(told) < len(crowd):
            engine._note(engine.core.step()[1], {}, told)
        assert sorted(told) == sorted(crowd)
    opened.set()
    assert engine.run()[queued].finished.reason is FinishReason.STOP


def test_the_time_of_others_replays_does_not_count(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an engine's death its successor replays the outputs of all constrained sequences."""
    words = lark('start: "y"{1,300}')
    engine.run_one(words, max_tokens=1)  # compiles it
    begun, opened = threading.Semaphore(0), threading.Event()
    follow = engine.constraints._follow

    def slow(*args: Any) -> None:
        begun.release()
        assert opened.wait(30)
        follow(*args)

    monkeypatch.setattr(engine.constraints, "_follow", slow)
    output = engine.model.tokenizer.encode("y", add_special_tokens=False).ids
    crowd = [engine.submit(words, output_token_ids=output, max_tokens=3) for _ in range(2)]
    assert all(begun.acquire(timeout=30) for _ in crowd)  # both threads are at work
    queued = engine.submit(words, output_token_ids=output, max_tokens=3)
    with monkeypatch.context() as impatient:
        impatient.setattr("engine.step.grammar_state.PATIENCE_SECONDS", 0.0)
        told: dict[int, Answer] = {}
        while len(told) < len(crowd):
            engine._note(engine.core.step()[1], {}, told)
        assert sorted(told) == sorted(crowd)
    opened.set()
    assert engine.run()[queued].finished.reason is not FinishReason.ERROR


def test_replays_of_aborted_sequences_are_skipped(engine: Engine) -> None:
    engine.run_one(WORD, max_tokens=1)  # compiles it
    outside = engine.model.tokenizer.encode("hello").ids  # fails, if it is replayed
    barrier = at_a_barrier(engine.constraints._replays)
    crowd = [engine.submit(WORD, output_token_ids=outside) for _ in range(3)]
    engine.core.abort(1, crowd)
    barrier.wait()
    at_a_barrier(engine.constraints._replays).wait()
    assert engine.constraints.counters.grammars_failed == 0
    answers = engine.run()
    assert {answers[handle].finished.reason for handle in crowd} == {FinishReason.ABORT}


def test_the_replay_of_a_sequence_that_is_overdue_is_cut_short(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = lark('start: "y"{1,300}')
    engine.run_one(words, max_tokens=1)  # compiles it
    begun, opened = threading.Event(), threading.Event()
    pieces: list[int] = []

    class Consuming:
        """A lock that is held until ``opened`` is set."""

        def __enter__(self) -> None:
            pieces.append(1)
            begun.set()
            assert opened.wait(30)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(engine.constraints, "_consuming", Consuming())
    output = engine.model.tokenizer.encode("y", add_special_tokens=False).ids * 100
    late = engine.submit(words, output_token_ids=output)
    assert begun.wait(30)
    with monkeypatch.context() as impatient:
        impatient.setattr("engine.step.grammar_state.PATIENCE_SECONDS", 0.0)
        assert "too long" in str(engine.run()[late].finished.error)
    opened.set()
    at_a_barrier(engine.constraints._replays).wait()
    assert len(pieces) == 1


def test_slow_masks_do_not_wait_for_replays(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = lark('start: "y"{1,300}')
    engine.run_one(words, max_tokens=1)  # compiles it
    begun, opened = threading.Semaphore(0), threading.Event()
    consume = engine.constraints._consume

    def long(grammar_state: Any, token_ids: list[int]) -> Any:
        if len(token_ids) > 1:
            begun.release()
            assert opened.wait(DEADLINE_SECONDS)
        return consume(grammar_state, token_ids)

    monkeypatch.setattr(engine.constraints, "_consume", long)
    monkeypatch.setattr("engine.constraint.masks._WAIT_SECONDS", -1.0)  # all masks are slow
    output = engine.model.tokenizer.encode("y", add_special_tokens=False).ids * 2
    crowd = [engine.submit(words, output_token_ids=output, max_tokens=3) for _ in range(3)]
    assert all(begun.acquire(timeout=30) for _ in range(2))
    live = engine.submit(words, max_tokens=10, ignore_eos=True)
    told: dict[int, Answer] = {}
    deadline = time.monotonic() + DEADLINE_SECONDS / 2
    while not told:
        assert time.monotonic() < deadline, "it waits for the replays"
        engine._note(engine.core.step()[1], {}, told)
    assert list(told) == [live]
    opened.set()
    assert sorted(engine.run()) == crowd


def test_a_grammar_is_not_compiled_for_aborted_sequences_only(engine: Engine) -> None:
    barrier = at_a_barrier(engine.constraints._compilers)
    gone, kept = lark('start: "a"'), lark('start: "b"')
    engine.core.abort(1, [engine.submit(gone), engine.submit(gone), engine.submit(kept)])
    live = engine.submit(kept)
    barrier.wait()
    at_a_barrier(engine.constraints._compilers).wait()
    assert engine.constraints.counters.grammars_compiled == 1
    assert engine.run()[live].finished.reason is FinishReason.STOP
    assert engine.text(engine.run_one(gone)) == "a"


def test_an_aborted_sequence_is_forgotten_while_its_grammar_compiles(
    engine: Engine, gate: threading.Event
) -> None:
    handle = engine.submit(WORD)
    engine.core.abort(1, [handle])
    assert engine.core.stats().waiting == 0
    gate.set()
    assert engine.run()[handle].finished.reason is FinishReason.ABORT


def test_a_grammar_is_compiled_once_for_all_who_bring_it(engine: Engine) -> None:
    together(engine, 8)
    together(engine, 8)
    assert engine.constraints.counters.grammars_compiled == 1
    assert (
        engine.constraints.counters.grammars_cached + engine.constraints.counters.grammars_compiled
        >= 9
    )
