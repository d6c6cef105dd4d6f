"""The ranks' parts of the logits give what the whole logits give."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.sampling.sharded import Vocabulary
from engine.sharding.shard import Shard
from tests.engine.ranks.threads import together
from tests.examples import examples

# Few distinct values, so that ties are the rule.
VALUES = st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 1.0, 3.4e38, 1e-45, math.inf, math.nan])


def part(logits: Tensor, shard: Shard) -> Tensor:
    first, end = shard.vocabulary(logits.shape[1])
    return logits[:, first:end]


@st.composite
def matrices(draw: st.DrawFn) -> Tensor:
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(5, 11))
    row = st.lists(VALUES, min_size=columns, max_size=columns)
    return torch.tensor(draw(st.lists(row, min_size=rows, max_size=rows)))


@settings(max_examples=examples(150), deadline=None)
@given(logits=matrices(), size=st.sampled_from([2, 3]))
def test_the_best_token_is_the_one_that_the_whole_row_has_with_ties_and_nan(
    logits: Tensor, size: int
) -> None:
    expected, choice = logits.max(dim=-1)
    for values, tokens in together(
        size,
        lambda ranks: Vocabulary(logits.shape[1], ranks).best(part(logits, ranks.shard)),
    ):
        assert torch.equal(values.float().nan_to_num(7), expected.nan_to_num(7))
        assert torch.equal(values.isnan(), expected.isnan())
        kept = ~expected.isnan()  # where it is, no token is chosen
        assert tokens[kept].tolist() == choice[kept].tolist()


@pytest.mark.parametrize(("vocabulary", "size"), [(12, 4), (151, 4), (7, 2), (13, 3)])
def test_gathered_logits_are_the_whole_ones(vocabulary: int, size: int) -> None:
    logits = torch.randn(5, vocabulary, generator=torch.Generator().manual_seed(1))
    wholes = together(
        size, lambda ranks: Vocabulary(vocabulary, ranks).whole(part(logits, ranks.shard))
    )
    assert all(whole.equal(logits) for whole in wholes)
    gathered = together(
        size, lambda ranks: Vocabulary(vocabulary, ranks).gather(part(logits, ranks.shard))
    )
    assert gathered[0] is not None
    assert gathered[0].equal(logits)
    assert gathered[1:] == [None] * (size - 1)
