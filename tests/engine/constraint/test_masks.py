"""A step gets the masks that are ready in time, and a reason for every row that it goes without."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from engine.constraint import masks
from engine.constraint.masks import wait_for_masks
from engine.messages import SamplingParams
from engine.step.grammar_state import GrammarError, GrammarState
from engine.step.mask import Allowed, TokenMask
from engine.step.sequence import Sequence
from engine.step.step import Withheld

MASK: TokenMask = np.array([0b110], dtype=np.uint32)


def sequence(state: GrammarState | None) -> Sequence:
    subject = Sequence(1, "r", [5], 1, SamplingParams(max_tokens=9))
    subject.grammar_state = state
    return subject


def working() -> GrammarState:
    state = GrammarState("", frozenset())
    state.begin_work()
    return state


def test_every_row_with_a_grammar_gets_its_mask_or_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(masks, "_WAIT_SECONDS", 0.0)
    ready, complete, failed, late = (working() for _ in range(4))
    ready.allow(Allowed(MASK, ends=False), MASK)
    complete.complete()
    failed.fail("it leads nowhere")
    found = wait_for_masks(
        [sequence(state) for state in (None, complete, ready, failed, None, late)]
    )
    assert list(found.ready) == [2]
    assert found.ready[2].tolist() == MASK.tolist()
    assert set(found.withheld) == {1, 3, 5}
    assert found.withheld[1] is Withheld.COMPLETE
    assert found.withheld[5] is Withheld.LATER
    assert isinstance(found.withheld[3], GrammarError)
    assert str(found.withheld[3]) == "constraint: it leads nowhere"
    assert late.is_slow  # no later step waits for it
    assert not ready.is_slow


def test_a_step_waits_for_a_mask_that_is_nearly_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "_WAIT_SECONDS", 30.0)
    state = working()
    worker = threading.Thread(target=state.allow, args=(Allowed(MASK, ends=False), MASK))
    began, wait = threading.Event(), GrammarState.wait

    def announced(self: GrammarState, until: float) -> bool:
        began.set()
        return wait(self, until)

    monkeypatch.setattr(GrammarState, "wait", announced)
    waiting = threading.Thread(target=lambda: found.append(wait_for_masks([sequence(state)])))
    found: list[masks.RowMasks] = []
    waiting.start()
    assert began.wait(30)
    assert not found  # the mask is not there yet
    worker.start()
    waiting.join(30)
    assert list(found[0].ready) == [0]
    assert not found[0].withheld


def test_a_batch_without_grammars_has_neither_masks_nor_reasons() -> None:
    found = wait_for_masks([sequence(None)] * 3)
    assert not found.ready
    assert not found.withheld
