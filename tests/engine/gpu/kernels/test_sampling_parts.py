"""Several programs a row draw the token that one draws, wherever the parts begin; more in
test_sampling.py."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.examples import examples

pytest.importorskip("triton")

from engine.gpu.kernels import sampling
from engine.gpu.kernels.sampling import sample
from engine.messages import SamplingParams
from engine.sampling.device import sampling_tensors


@pytest.mark.parametrize("vocabulary", [5, 33, 64, 1000])
def test_parts_may_be_empty_short_or_uneven(device: torch.device, vocabulary: int) -> None:
    torch.manual_seed(vocabulary)
    params = [
        SamplingParams(max_tokens=1, temperature=0.0),
        SamplingParams(max_tokens=1, seed=1, temperature=20.0),
        SamplingParams(max_tokens=1, seed=2, temperature=9.0, top_p=0.9),
        SamplingParams(max_tokens=1, seed=3, temperature=9.0, top_k=4),
    ]
    logits = torch.randn(len(params), vocabulary, device=device) * 3
    positions = torch.arange(len(params), dtype=torch.int32, device=device)
    tensors = sampling_tensors(params, vocabulary, device)
    alone, best_alone = sample(logits, tensors, positions, in_parts=False)
    shared, best_shared = sample(logits, tensors, positions, in_parts=True)
    assert shared.tolist() == alone.tolist()
    assert torch.equal(best_alone, best_shared)


def odd_row(kind: str, vocabulary: int, generator: torch.Generator) -> Tensor:
    row = torch.randn(vocabulary, generator=generator)
    if kind == "equal":
        return torch.full_like(row, -2.5)
    if kind == "one is left":
        return torch.where(torch.arange(vocabulary) == vocabulary // 2, row, -math.inf)
    if kind == "most are hidden":
        return torch.where(row > 1.5, row, -math.inf)
    if kind == "two values":
        return (row > 1).float()
    if kind == "sorted":
        return row.sort().values  # nearly all that count are in the last parts
    if kind == "bfloat16":
        return (row * 4).bfloat16().float()
    if kind == "almost flat":
        return row * 1e-6 + 1
    return row * 30  # "far apart"


ODD = ("equal", "one is left", "most are hidden", "two values", "sorted", "bfloat16")
ODD += ("almost flat", "far apart")


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(
    asked=st.lists(
        st.tuples(
            st.sampled_from(ODD),
            st.sampled_from([0, 1, 20, 32, 33, 500]),
            st.sampled_from([1e-9, 0.3, 0.95, 1 - 1e-7, 1 - 2**-53, 1.0]),
            st.sampled_from([0.0, 0.0, 0.2]),
            st.sampled_from([0.4, 1.0, 3.0]),
        ),
        min_size=1,
        max_size=3,
    ),
    vocabulary=st.integers(2, 2500),
    seed=st.integers(0, 2**31),
)
def test_odd_rows_give_the_token_that_one_program_draws(
    device: torch.device,
    asked: list[tuple[str, int, float, float, float]],
    vocabulary: int,
    seed: int,
) -> None:
    """One program finds thresholds by bisection of all candidates. What it draws is compared with
    the reference in test_sampling.py."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.stack([odd_row(kind, vocabulary, generator) for kind, *_ in asked]).to(device)
    params = [
        SamplingParams(
            max_tokens=1, seed=seed + row, top_k=k, top_p=p, min_p=least, temperature=heat
        )
        for row, (_, k, p, least, heat) in enumerate(asked)
    ]
    positions = torch.arange(len(asked), dtype=torch.int32, device=device)
    tensors = sampling_tensors(params, vocabulary, device)
    alone, _ = sample(logits, tensors, positions, in_parts=False)
    shared, _ = sample(logits, tensors, positions, in_parts=True)
    assert shared.tolist() == alone.tolist()


def test_a_large_vocabulary_is_shared_by_programs_for_any_number_of_rows(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(sampling, "sample_in_parts", lambda logits, *_: seen.append(logits.shape))
    for count, vocabulary in ((1, 8192), (300, 8192), (1, 8191)):
        params = [SamplingParams(max_tokens=1, temperature=0.0)] * count
        positions = torch.zeros(count, dtype=torch.int32, device=device)
        logits = torch.zeros(count, vocabulary, device=device)
        sample(logits, sampling_tensors(params, vocabulary, device), positions)
    assert seen == [(1, 8192), (300, 8192)]
