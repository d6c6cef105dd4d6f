"""Edited rows are those of the sampler in torch, from step to step as sequences grow."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

import engine.gpu.edits
from engine.gpu.edits import RowEditor
from engine.messages import token_mask
from engine.sampling.sampler import Sampler
from engine.step.sequence import Sequence
from tests.engine.sampling.rows import EOS, VOCABULARY, params, sampler, sequence, some_logits

REQUIRED: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.8},
    {"presence_penalty": 1.5, "frequency_penalty": -0.3, "repetition_penalty": 0.7},
    {"logit_bias": {9: 3.0, 20: -100.0, VOCABULARY + 5: 1.0}},
    {"allowed_tokens": token_mask((1, 9, 17, 30))},
    {"bad_words_token_ids": ((12,), (12,), (9, 10, 20), (10, 20))},
    {"min_tokens": 8, "stop_token_ids": frozenset((9, 30))},
    {
        "allowed_tokens": token_mask(range(1, 33)),
        "bad_words_token_ids": ((4,),),
        "logit_bias": {4: 5.0, 6: -1.0},
        "frequency_penalty": 0.9,
        "min_tokens": 7,
    },
]
MASK = np.array([0b1010_1010_1010, 0b11], np.uint32)
MASKS = {1: MASK, 7: ~MASK}


def editor(device: torch.device) -> RowEditor:
    return RowEditor(Sampler(vocab_size=VOCABULARY, eos_token_ids=EOS, device=device))


def sequences() -> list[Sequence]:
    return [sequence(number, params(**wanted)) for number, wanted in enumerate(REQUIRED)]


def expected(
    reference: Sampler, logits: torch.Tensor, rows: list[Sequence], masks: dict[int, np.ndarray]
) -> torch.Tensor:
    edited = logits.float().clone()
    reference.choose(edited, rows, masks)
    return edited


def test_rows_that_grow_are_edited_as_by_torch_to_the_last_bit(device: torch.device) -> None:
    subject, reference = editor(device), sampler()
    rows, chance = sequences(), random.Random(0)
    for step in range(6):
        logits = some_logits(step, len(rows)).half()
        kept = logits.clone()
        found = subject.edit(logits.to(device), range(len(rows)), rows, MASKS, [2])
        assert torch.equal(found.logits.cpu(), expected(reference, kept, rows, MASKS))
        assert torch.equal(logits, kept)
        for row in rows:
            # Often one that it holds already; sometimes several, as after a step that was redone.
            row.token_ids += chance.choices(range(VOCABULARY), k=chance.randrange(1, 4))


def test_rows_are_picked_and_told_in_one_packet(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, rows = editor(device), sequences()
    logits = some_logits(3, len(rows))
    whole = expected(sampler(), logits, rows, MASKS)
    subject.edit(logits.to(device), [1, 2, 7], rows, MASKS, [])
    sends: list[int] = []
    send = engine.gpu.edits.sent

    def noted(arrays: Any, device: torch.device) -> Any:
        sends.append(len(arrays))
        return send(arrays, device)

    monkeypatch.setattr(engine.gpu.edits, "sent", noted)
    found = subject.edit(logits.to(device), [7, 2, 0], rows, MASKS, [2])
    assert len(sends) == 1
    assert torch.equal(found.logits.cpu(), whole[[7, 2, 0]])
    assert found.rows.tolist() == [7, 2, 0]
    assert found.reported.tolist() == [2]
    assert found.restricted == {7}
    everything = subject.edit(logits.to(device), range(8), rows, MASKS, [])
    assert everything.restricted == {1, 4, 5, 6, 7}


def test_counts_outgrow_their_memory(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.gpu.edits, "_FEWEST_COUNTED", 1)
    subject, reference = editor(device), sampler()
    row = sequence(1, params(frequency_penalty=0.5), prompt=[1], output=[2])
    for token in range(3, 30):
        logits = some_logits(token)
        found = subject.edit(logits.to(device), [0], [row], {}, [])
        assert torch.equal(found.logits.cpu(), expected(reference, logits, [row], {}))
        row.token_ids.append(token)


def run_out(*_: Any, **__: Any) -> Any:
    raise RuntimeError("no memory")


def test_what_a_failed_step_did_not_send_is_sent_by_the_next(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, reference = editor(device), sampler()
    row = sequence(1, params(frequency_penalty=0.5))
    logits = some_logits(1)
    subject.edit(logits.to(device), [0], [row], {}, [])
    row.token_ids += [11, 11]
    with monkeypatch.context() as patch:
        patch.setattr(engine.gpu.edits, "edit_rows", run_out)
        with pytest.raises(RuntimeError, match="no memory"):
            subject.edit(logits.to(device), [0], [row], {}, [])
    row.token_ids.append(6)
    found = subject.edit(logits.to(device), [0], [row], {}, [])
    assert torch.equal(found.logits.cpu(), expected(reference, logits, [row], {}))


def test_a_sequence_that_left_is_forgotten(device: torch.device) -> None:
    subject, reference = editor(device), sampler()
    penalised = params(presence_penalty=1.0)
    subject.edit(some_logits().to(device), [0], [sequence(1, penalised)], {}, [])
    subject.forget(1)
    subject.forget(2)  # never known
    other = sequence(1, penalised, prompt=[20], output=[21])
    found = subject.edit(some_logits().to(device), [0], [other], {}, [])
    assert torch.equal(found.logits.cpu(), expected(reference, some_logits(), [other], {}))
