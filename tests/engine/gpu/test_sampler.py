"""Steps sampled by the kernel give what the sampler in torch gives, whatever their rows require."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from engine.errors import RefusedError
from engine.gpu.edits import RowEditor
from engine.gpu.sampler import KernelSampler, kernel_logprobs
from engine.messages import token_mask
from engine.sampling.device import Draws, sampling_tensors
from engine.sampling.logprobs import token_logprobs
from engine.sampling.sampler import Choice, Sampler, SamplingError
from engine.step.sequence import Sequence
from engine.step.step import SampledToken
from tests.engine.sampling.rows import EOS, VOCABULARY, params, sampler, sequence, some_logits

ASKED: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.3, "top_p": 0.8},
    {"repetition_penalty": 1.8},
    {"presence_penalty": 1.5, "frequency_penalty": 0.9, "top_k": 7},
    {"logit_bias": {9: 3.0, 20: -100.0}, "temperature": 0.0},
    {"allowed_tokens": token_mask((1, 9, 17, 30))},
    {"bad_words_token_ids": ((12,), (9, 10, 20))},
    {"min_tokens": 6, "stop_token_ids": frozenset((9, 30))},
    {"min_tokens": 5, "stop_token_ids": frozenset((9, 30)), "min_p": 0.1},
    {"logprobs": 3},
    {"logprobs": 0, "logit_bias": {1: 5.0}, "temperature": 0.0},
]


def by_kernel(device: torch.device) -> KernelSampler:
    plain = Sampler(vocab_size=VOCABULARY, eos_token_ids=EOS, device=device)
    return KernelSampler(plain, lambda hidden: hidden)


def draws(rows: list[Sequence], device: torch.device) -> Draws:
    positions = torch.tensor([row.num_tokens for row in rows], dtype=torch.int32, device=device)
    return Draws(sampling_tensors([row.params for row in rows], VOCABULARY, device), positions)


def chosen(
    subject: KernelSampler,
    logits: torch.Tensor,
    rows: list[Sequence],
    masks: dict[int, np.ndarray] | None = None,
) -> Choice:
    return subject.choose(logits, rows, masks or {}, draws(rows, logits.device))


def test_rows_of_every_kind_together_get_what_the_sampler_in_torch_gives(
    device: torch.device,
) -> None:
    subject, reference = by_kernel(device), sampler()
    for seed in range(6):
        rows = [
            sequence(seed * 100 + place, params(**({"seed": seed * 100 + place} | asked)))
            for place, asked in enumerate(ASKED)
        ]
        logits = some_logits(seed, len(rows))
        mask = np.array([0b1010_1010_1010, 0], np.uint32)
        masks = {1: mask, 9: mask}
        rows[1].grammar_state = rows[9].grammar_state = object()  # type: ignore[assignment]
        expected = reference.sample(logits.clone(), rows, masks)
        there = logits.to(device)
        found = chosen(subject, there, rows, masks).read()
        assert torch.equal(there.cpu(), logits), "the logits of the plain rows are another's"
        for one, other in zip(found, expected, strict=True):
            assert isinstance(one, SampledToken)
            assert isinstance(other, SampledToken)
            assert one.token_id == other.token_id
            assert (one.logprobs is None) == (other.logprobs is None)
            if one.logprobs is not None and other.logprobs is not None:
                assert one.logprobs.logprob == pytest.approx(other.logprobs.logprob, abs=1e-5)
                assert one.logprobs.rank == other.logprobs.rank
                assert [top.token_id for top in one.logprobs.top] == [
                    top.token_id for top in other.logprobs.top
                ]


def test_a_plain_step_edits_nothing(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowEditor, "edit", lambda *_: pytest.fail("edited"))
    rows = [sequence(place, params(seed=place)) for place in range(3)]
    found = chosen(by_kernel(device), some_logits(0, 3).to(device), rows).read()
    assert all(isinstance(one, SampledToken) for one in found)


def test_a_row_without_a_token_left_fails_alone_and_says_whose_fault_it_is(
    device: torch.device,
) -> None:
    logits = some_logits(0, 4)
    logits[3] = math.nan
    contradiction = {"allowed_tokens": token_mask([3]), "bad_words_token_ids": ((3,),)}
    rows = [sequence(0, params()), sequence(1, params(**contradiction)), sequence(2, params())]
    rows.append(sequence(3, params(logprobs=2)))
    found = chosen(by_kernel(device), logits.to(device), rows).read()
    assert [isinstance(one, SampledToken) for one in found] == [True, False, True, False]
    assert isinstance(found[1], RefusedError)
    assert isinstance(found[3], SamplingError)
    assert not isinstance(found[3], RefusedError)


def test_narrow_logits_are_widened_for_edited_rows_only(device: torch.device) -> None:
    logits = some_logits(3, 2).half()
    rows = [sequence(0, params(temperature=0.0)), sequence(1, params(temperature=0.0, logprobs=0))]
    found = chosen(by_kernel(device), logits.to(device), rows).read()
    best = logits.float().argmax(dim=1).tolist()
    assert [one.token_id for one in found if isinstance(one, SampledToken)] == best


def test_logprobs_are_those_of_a_log_softmax(device: torch.device) -> None:
    logits, tokens, tops = some_logits(5, 4), [3, 0, 39, 7], [0, 5, 2, 40]
    expected = token_logprobs(logits, tokens, tops)
    there = torch.tensor(tokens, dtype=torch.int32, device=device)
    for one, other in zip(
        kernel_logprobs(logits.to(device), there, tops).read(), expected, strict=True
    ):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
        assert one.rank == other.rank
        assert [top.token_id for top in one.top] == [top.token_id for top in other.top]
        assert [top.logprob for top in one.top] == pytest.approx(
            [top.logprob for top in other.top], abs=1e-5
        )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_no_kind_of_row_makes_the_host_wait_for_the_gpu(device: torch.device) -> None:
    subject, logits = by_kernel(device), some_logits(0, len(ASKED)).to(device)
    rows = [sequence(place, params(**asked)) for place, asked in enumerate(ASKED)]
    rows[1].grammar_state = object()  # type: ignore[assignment]
    masks = {1: np.array([0b1010_1010_1010, 0], np.uint32)}
    columns = draws(rows, device)
    subject.choose(logits, rows, masks, columns).read()  # compiles
    fresh = by_kernel(device)
    torch.cuda.set_sync_debug_mode("error")
    try:
        choice = fresh.choose(logits, rows, masks, columns)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(isinstance(one, SampledToken) for one in choice.read())
