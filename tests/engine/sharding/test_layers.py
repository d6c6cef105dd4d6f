"""Layers whose parts lie on several ranks give every rank what the undivided layer gives."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from engine.model.layers import Linear
from engine.sharding.collectives import ALONE
from engine.sharding.layers import row_parallel, vocabulary_embedding
from engine.sharding.shard import Shard
from tests.engine.ranks.threads import ThreadCollectives, together

INPUTS, OUTPUTS, ROWS = 12, 5, 4


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("has_bias", [True, False])
def test_inputs_divided_among_ranks_are_mapped_and_added_once(size: int, has_bias: bool) -> None:
    """The first rank alone has the bias, and only its residual counts."""
    torch.manual_seed(size)
    weight, x = torch.randn(OUTPUTS, INPUTS), torch.randn(ROWS, INPUTS)
    bias = torch.randn(OUTPUTS) if has_bias else None
    residual = torch.randn(ROWS, OUTPUTS)
    expected = residual + functional.linear(x, weight, bias)

    def work(ranks: ThreadCollectives) -> torch.Tensor:
        first, end = ranks.shard.even(INPUTS)
        is_first = ranks.shard.rank == 0
        own_bias = None if bias is None else bias if is_first else torch.zeros(OUTPUTS)
        layer = row_parallel(Linear(weight[:, first:end].contiguous(), own_bias), ranks)
        own_residual = residual.clone() if is_first else torch.full_like(residual, torch.nan)
        return layer.add_to(own_residual, x[:, first:end])

    for found in together(size, work):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("vocabulary", "size"), [(12, 2), (7, 3), (151, 4)])
def test_every_token_s_embedding_comes_from_the_rank_that_holds_it(
    vocabulary: int, size: int
) -> None:
    weight = torch.randn(vocabulary, 6, generator=torch.Generator().manual_seed(0))
    # A token that a rank does not know must not reach the others as NaN.
    tokens = torch.arange(vocabulary).repeat(2)

    def work(ranks: ThreadCollectives) -> torch.Tensor:
        first, end = ranks.shard.vocabulary(vocabulary)
        return vocabulary_embedding(weight[first:end], vocabulary, ranks)(tokens)

    for found in together(size, work):
        assert torch.equal(found, weight[tokens])
    assert tokens.tolist() == [*range(vocabulary)] * 2  # they are not overwritten


def test_an_infinite_embedding_spoils_its_own_token_only() -> None:
    weight = torch.ones(6, 2)
    weight[0] = torch.inf  # what both ranks would look up for a token that they do not know
    weight[3] = torch.nan

    def work(ranks: ThreadCollectives) -> torch.Tensor:
        first, end = ranks.shard.vocabulary(6)
        return vocabulary_embedding(weight[first:end], 6, ranks)(torch.tensor([1, 4, 3]))

    for found in together(2, work):
        assert found[:2].tolist() == [[1, 1], [1, 1]]
        assert found[2].isnan().all()


def test_a_single_rank_has_the_plain_layers() -> None:
    linear = Linear(torch.eye(3))
    assert row_parallel(linear, ALONE) is linear
    weight = torch.arange(6.0).view(3, 2)
    assert vocabulary_embedding(weight, 3, ALONE)(torch.tensor([2, 0])).tolist() == [[4, 5], [0, 1]]
    assert ALONE.shard == Shard(0, 1)
