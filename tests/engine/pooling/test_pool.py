"""A text's vector does not depend on the chunks that it came in, nor on chunks computed twice."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.messages import Pooling, SamplingParams
from engine.pooling.pool import Pooler, PoolingError, shape_vector
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence

TOKENS, HIDDEN = 12, 5
STATES = torch.randn(TOKENS, HIDDEN, generator=torch.Generator().manual_seed(0))
WHOLE = {
    Pooling.MEAN: STATES.double().mean(0),
    Pooling.LAST: STATES[-1].double(),
    Pooling.CLS: STATES[0].double(),
}


def take(
    pooler: Pooler, start: int, end: int, uid: int = 1, states: Tensor = STATES
) -> Tensor | None:
    sequence = Sequence(uid, "r", [0] * TOKENS, TOKENS, SamplingParams(max_tokens=1))
    item = ScheduledSequence(sequence, start, end - start, completes=end == TOKENS)
    return pooler.take(item, states[start:end])


def assert_pooled(found: Tensor | None, pooling: Pooling) -> None:
    assert found is not None
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), WHOLE[pooling], rtol=1e-6, atol=1e-6)


@settings(max_examples=50)
@given(
    pooling=st.sampled_from(list(WHOLE)),
    cuts=st.sets(st.integers(1, TOKENS - 1)),
    back_to=st.integers(0, TOKENS - 1),
    other=st.sets(st.integers(1, TOKENS - 1)),
)
def test_any_chunks_give_the_whole_text_s_vector_also_when_begun_again(
    pooling: Pooling, cuts: set[int], back_to: int, other: set[int]
) -> None:
    """Computed up to some place, then again from an earlier one in other chunks."""
    pooler = Pooler(pooling)
    edges = [0, *sorted(cuts)]
    for start, end in itertools.pairwise(edges):
        assert take(pooler, start, end) is None
    start = max(edge for edge in edges if edge <= back_to)
    for end in [*sorted(cut for cut in other if cut > start), TOKENS]:
        found = take(pooler, start, end)
        start = end
        assert (found is None) == (end < TOKENS)
    assert_pooled(found, pooling)


def test_sequences_are_kept_apart_and_forgotten() -> None:
    pooler = Pooler(Pooling.MEAN)
    take(pooler, 0, 5, uid=1)
    take(pooler, 0, 5, uid=2, states=STATES + 100)
    assert_pooled(take(pooler, 5, TOKENS, uid=1), Pooling.MEAN)
    pooler.forget(2)
    pooler.forget(3)  # never heard of
    rest = take(pooler, 5, TOKENS, uid=2)
    assert rest is not None
    torch.testing.assert_close(rest, STATES[5:].sum(0) / TOKENS)


def test_sums_are_float32_for_any_dtype_of_the_model() -> None:
    ones = torch.full((TOKENS, HIDDEN), 256.5).bfloat16().repeat(400, 1)
    sequence = Sequence(1, "r", [0] * len(ones), len(ones), SamplingParams(max_tokens=1))
    item = ScheduledSequence(sequence, 0, len(ones), completes=True)
    found = Pooler(Pooling.MEAN).take(item, ones)
    assert found is not None
    assert found.tolist() == [float(ones[0, 0])] * HIDDEN


@pytest.mark.parametrize("pooling", list(WHOLE))
def test_only_last_token_pooling_does_without_the_other_tokens(pooling: Pooling) -> None:
    assert Pooler(pooling).needs_every_token == (pooling is not Pooling.LAST)


def shaped(values: list[float], dimensions: int | None, normalize: bool) -> list[float]:
    vector = shape_vector(np.array(values, np.float32), dimensions=dimensions, normalize=normalize)
    return np.frombuffer(vector.data, "<f4").tolist()


def test_a_vector_is_cut_before_it_is_brought_to_length_one() -> None:
    assert shaped([3.0, 4.0, 12.0], None, False) == [3.0, 4.0, 12.0]
    assert shaped([3.0, 4.0, 12.0], 2, False) == [3.0, 4.0]
    assert shaped([3.0, 4.0, 12.0], 2, True) == pytest.approx([0.6, 0.8])
    assert shaped([0.0, 0.0], None, True) == [0.0, 0.0]  # has no direction


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_make_no_vector_even_if_they_are_cut_off(broken: float) -> None:
    with pytest.raises(PoolingError, match="not finite"):
        shaped([1.0, broken], 1, True)
