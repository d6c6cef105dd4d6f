"""Grammars are compiled once, in parallel to the engine's steps, without delaying them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from engine.constraint import constraints as constraints_module
from engine.constraint.grammar import compile_grammar
from engine.messages import (
    FinishReason,
)
from engine.queueing import WaitingReason
from tests.engine.constraint.running import WORD, Answer, Engine, lark, together

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
