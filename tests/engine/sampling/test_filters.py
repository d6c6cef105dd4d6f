"""Each filter keeps what its definition keeps, of every row by itself, ties together."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.messages import SamplingParams
from engine.sampling.filters import keep_min_p, keep_top_k, keep_top_p
from tests.engine.sampling.reference import distribution


def column(*values: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(values, dtype=dtype).unsqueeze(1)


def kept(logits: Tensor) -> list[list[int]]:
    return [row.isfinite().nonzero().flatten().tolist() for row in logits]


def by_reference(row: Tensor, **wanted: float) -> list[int]:
    params = SamplingParams(max_tokens=1, **wanted)  # type: ignore[arg-type]  # numbers, as named
    return np.flatnonzero(distribution(row.double().numpy(), params, [], [])).tolist()


@pytest.mark.parametrize("width", [7, 600, 3000])
def test_kept_tokens_are_those_of_the_reference(width: int) -> None:
    """In float64, where rounding moves no threshold. Of the flattest rows, top-p needs more than
    the first candidates."""
    noise = torch.randn(4, width, generator=torch.Generator().manual_seed(width))
    logits = noise.double() * column(0.1, 1, 3, 9)
    p, k = (0.3, 0.95, 0.9999, 0.6), (1, 3, 5, 6)
    before = logits.clone()
    assert kept(keep_top_p(logits, column(*p, dtype=torch.float64))) == [
        by_reference(row, top_p=each) for row, each in zip(logits, p, strict=True)
    ]
    assert kept(keep_min_p(logits, column(*p))) == [
        by_reference(row, min_p=each) for row, each in zip(logits, p, strict=True)
    ]
    assert kept(keep_top_k(logits, column(*k, dtype=torch.int64), max(k))) == [
        by_reference(row, top_k=each) for row, each in zip(logits, k, strict=True)
    ]
    assert torch.equal(logits, before)


def test_a_filter_that_is_off_leaves_its_row_whole() -> None:
    logits = torch.tensor([[3.0, 2.0, -50.0, 1.0]]).repeat(2, 1)
    off, on = [0, 1, 2, 3], [0]
    assert kept(keep_top_k(logits, column(4, 1, dtype=torch.int64), 1)) == [off, on]
    assert kept(keep_top_p(logits, column(1.0, 0.1, dtype=torch.float64))) == [off, on]
    assert kept(keep_min_p(logits, column(0.0, 0.9))) == [off, on]


def test_tokens_as_likely_as_the_last_one_kept_stay() -> None:
    logits = torch.tensor([[1.0, 0.0, 1.0, 1.0]])
    assert kept(keep_top_k(logits, column(2, dtype=torch.int64), 2)) == [[0, 2, 3]]
    assert kept(keep_top_p(logits, column(0.2, dtype=torch.float64))) == [[0, 2, 3]]


def test_hidden_tokens_stay_hidden() -> None:
    logits = torch.tensor([[float("-inf"), 1.0, float("-inf"), 0.5]])
    assert kept(keep_top_k(logits, column(3, dtype=torch.int64), 3)) == [[1, 3]]
    assert kept(keep_top_p(logits, column(0.999, dtype=torch.float64))) == [[1, 3]]
    assert kept(keep_min_p(logits, column(0.01))) == [[1, 3]]
