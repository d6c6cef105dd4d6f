"""The sort-free sampler chooses what the reference sampler chooses, from the same numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.examples import examples

pytest.importorskip("triton")

from engine.gpu.kernels.sampling import sample
from engine.messages import SamplingParams
from engine.sampling.device import sampling_tensors
from engine.sampling.params import build_batch
from engine.sampling.random import uniforms
from engine.sampling.sampler import draw
from engine.step.sequence import Sequence
from tests.engine.sampling.reference import distribution

CPU = torch.device("cpu")


def sequence(params: SamplingParams, position: int) -> Sequence:
    """A sequence whose next token has ``position``."""
    return Sequence(
        uid=0, request_id="", token_ids=[0] * position, num_prompt_tokens=1, params=params
    )


def chosen(logits: Tensor, params: list[SamplingParams], positions: list[int]) -> list[int]:
    """By the kernel, and by several programs a row."""
    tensors = sampling_tensors(params, logits.shape[1], logits.device)
    at = torch.tensor(positions, dtype=torch.int32, device=logits.device)
    found = []
    for in_parts in (False, True):
        tokens, bests = sample(logits, tensors, at, in_parts=in_parts)
        assert torch.equal(bests, logits.amax(dim=1).float())
        found.append(tokens.tolist())
    assert found[0] == found[1]
    return found[0]


def expected(logits: Tensor, params: list[SamplingParams], positions: list[int]) -> list[int]:
    """By the reference."""
    logits = logits.float().cpu()
    tokens: list[int] = logits.argmax(dim=1).tolist()
    sequences = [sequence(p, at) for p, at in zip(params, positions, strict=True)]
    batch = build_batch(sequences, [None] * len(sequences), vocab_size=logits.shape[1], device=CPU)
    if batch.random is not None:
        rows = list(batch.random.indices)
        at = np.array([positions[row] for row in rows], np.uint64)
        numbers = torch.from_numpy(uniforms(batch.random.seeds, at))
        for row, token in zip(
            rows, draw(logits[rows], batch.random, numbers).tolist(), strict=True
        ):
            tokens[row] = token
    return tokens


def by_float64(logits: Tensor, params: SamplingParams, position: int) -> int:
    """From the whole distribution. The reference sums float32 probabilities, which here decides
    where top-p ends."""
    weights = distribution(logits.double().cpu().numpy(), params, [], []).cumsum()
    [number] = uniforms(np.array([params.seed], np.uint64), np.array([position], np.uint64))
    return int(np.searchsorted(weights, number * weights[-1], side="right"))


FILTERS = {
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 0.7},
    "hot": {"temperature": 30.0},
    "top_k": {"top_k": 5},
    "top_k_one": {"top_k": 1},
    "top_p": {"top_p": 0.9},
    "top_p_least": {"top_p": 1e-9},
    "min_p": {"min_p": 0.1},
    "all": {"temperature": 1.3, "top_k": 40, "top_p": 0.8, "min_p": 0.02},
    "k_and_p": {"top_k": 300, "top_p": 0.5},
    "k_after_min_p_has_left_fewer": {"top_k": 50, "min_p": 0.5},
}


@pytest.mark.parametrize(
    ("vocabulary", "spread"),
    [
        (2500, 3.0),  # more than one block
        pytest.param(151, 0.5, marks=pytest.mark.slow),
        pytest.param(151, 3.0, marks=pytest.mark.slow),
        pytest.param(151, 25.0, marks=pytest.mark.slow),
    ],
)
def test_tokens_are_those_of_the_reference(
    device: torch.device, vocabulary: int, spread: float
) -> None:
    torch.manual_seed(vocabulary)
    params = [
        SamplingParams(max_tokens=1, seed=row, **kind) for row, kind in enumerate(FILTERS.values())
    ]
    logits = torch.randn(len(params), vocabulary, device=device) * spread
    positions = [100 + 3 * row for row in range(len(params))]
    assert chosen(logits, params, positions) == expected(logits, params, positions)


def test_ties_at_a_threshold_stay_together(device: torch.device) -> None:
    """Of four equal logits two would do for top-k and for top-p; all four can come."""
    logits = torch.full((14, 40), -5.0, device=device)
    logits[:, 10:14] = 2.0
    for kind in ({"top_k": 2, "top_p": 0.3}, {"top_p": 0.3}):
        params = [SamplingParams(max_tokens=1, seed=seed, **kind) for seed in range(14)]
        tokens = expected(logits, params, [1] * 14)
        rows = [tokens.index(token) for token in range(10, 14)]  # one seed for each of the four
        found = chosen(logits[rows], [params[row] for row in rows], [1] * 4)
        assert found == [10, 11, 12, 13]


def test_tokens_far_from_the_likeliest_count_where_a_filter_reaches_them(
    device: torch.device,
) -> None:
    """All but one token are e^16.5 times less likely than that one, and hardly ever come: seeds
    are sought whose first number falls among them."""
    torch.manual_seed(0)
    logits = torch.randn(2, 3000, device=device) * 1e-3
    logits[:, 77] = 16.5
    seeds = np.arange(100_000, dtype=np.uint64)
    [seed, *_] = seeds[uniforms(seeds, np.ones_like(seeds)) > 0.99995].tolist()
    params = [
        SamplingParams(max_tokens=1, seed=seed, top_p=0.9999),
        SamplingParams(max_tokens=1, seed=seed, top_k=900),
    ]
    tokens = chosen(logits, params, [1] * 2)
    assert tokens == [by_float64(*row, 1) for row in zip(logits, params, strict=True)]
    assert 77 not in tokens


def test_hidden_tokens_never_come(device: torch.device) -> None:
    logits = torch.full((4, 300), -math.inf, device=device)
    logits[:, [7, 250]] = 1.0
    params = [SamplingParams(max_tokens=1, seed=seed, top_k=30) for seed in range(4)]
    params[3] = SamplingParams(max_tokens=1, seed=3, temperature=1.0)
    tokens = chosen(logits, params, [1] * 4)
    assert tokens == expected(logits, params, [1] * 4)
    assert set(tokens) == {7, 250}


def test_the_first_of_equally_likely_tokens_is_the_greedy_one(device: torch.device) -> None:
    logits = torch.zeros(2, 4500, device=device)
    logits[1, [4400, 3000, 4499]] = 1.0
    greedy = [SamplingParams(max_tokens=1, temperature=0.0)] * 2
    assert chosen(logits, greedy, [1, 1]) == [0, 3000]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("in_parts", [False, True])
def test_a_row_without_finite_logits_says_so(
    device: torch.device, broken: float, temperature: float, in_parts: bool
) -> None:
    logits = torch.randn(2, 100, device=device)
    logits[0, 50] = broken
    params = [SamplingParams(max_tokens=1, temperature=temperature, top_p=0.5)] * 2
    tokens, bests = sample(
        logits,
        sampling_tensors(params, 100, device),
        torch.ones(2, dtype=torch.int32, device=device),
        in_parts=in_parts,
    )
    assert math.isfinite(bests[1].item())
    assert math.isnan(bests[0].item()) == math.isnan(broken)
    assert not math.isfinite(bests[0].item())
    assert 0 <= int(tokens.min()) <= int(tokens.max()) < 100


def test_bfloat16_logits_are_read_as_they_are(device: torch.device) -> None:
    logits = (torch.randn(3, 700, device=device) * 4).bfloat16()
    params = [SamplingParams(max_tokens=1, seed=seed, top_p=0.9) for seed in range(3)]
    assert chosen(logits, params, [9] * 3) == expected(logits, params, [9] * 3)


@pytest.mark.parametrize("in_parts", [False, True])
def test_some_rows_of_a_batch_are_sampled_by_themselves(
    device: torch.device, in_parts: bool
) -> None:
    logits = torch.randn(5, 700, device=device)
    params = [SamplingParams(max_tokens=1, seed=seed, top_k=20 * seed) for seed in range(5)]
    positions = [3, 4, 5, 6, 7]
    whole = expected(logits, params, positions)
    tokens = torch.full((5,), -1, dtype=torch.int32, device=device)
    bests = torch.zeros(5, device=device)
    chosen_rows = torch.tensor([4, 1], device=device)
    sample(
        logits[chosen_rows],
        sampling_tensors(params, 700, device),
        torch.tensor(positions, dtype=torch.int32, device=device),
        rows=chosen_rows,
        tokens=tokens,
        bests=bests,
        in_parts=in_parts,
    )
    assert tokens.tolist() == [-1, whole[1], -1, -1, whole[4]]
    assert bests[[1, 4]].equal(logits[[1, 4]].amax(dim=1))
    assert bests[[0, 2, 3]].tolist() == [0.0] * 3


@dataclass(frozen=True)
class Kind:
    temperature: float
    top_k: int
    top_p: float
    min_p: float


kinds = st.builds(
    Kind,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 4.0]),
    top_k=st.sampled_from([0, 1, 3, 60, 1000]),
    top_p=st.sampled_from([0.01, 0.37, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.001, 0.7]),
)


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(
    asked=st.lists(kinds, min_size=1, max_size=4),
    vocabulary=st.integers(2, 3000),
    spread=st.sampled_from([0.0, 0.2, 2.0, 12.0]),
    levels=st.sampled_from([0, 3, 50]),
    seed=st.integers(0, 2**63),
)
def test_any_row_gives_the_token_of_the_reference(
    device: torch.device,
    asked: list[Kind],
    vocabulary: int,
    spread: float,
    levels: int,
    seed: int,
) -> None:
    """``levels``: so many distinct logits, so that ties are the rule."""
    generator = torch.Generator().manual_seed(seed % 2**31)
    logits = torch.randn(len(asked), vocabulary, generator=generator) * spread
    if levels:
        logits = (logits * levels).round() / levels
    params = [
        SamplingParams(
            max_tokens=1,
            seed=seed + row,
            temperature=kind.temperature,
            top_k=kind.top_k,
            top_p=kind.top_p,
            min_p=kind.min_p,
        )
        for row, kind in enumerate(asked)
    ]
    positions = [seed % 1000 + row for row in range(len(asked))]
    assert chosen(logits.to(device), params, positions) == expected(logits, params, positions)
