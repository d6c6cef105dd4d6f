"""Experts are chosen as the reference chooses them, and their rows lie in tiles."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from engine.architecture.features import Experts
from engine.gpu.kernels.routing import choose_experts, group
from engine.model.experts import route


@pytest.mark.parametrize("renormalised", [False, True])
@pytest.mark.parametrize(
    ("rows", "count", "top_k"), [(1, 4, 2), (5, 60, 7), (3, 128, 8), (2, 3, 3)]
)
def test_routes_as_the_reference(
    device: torch.device, *, rows: int, count: int, top_k: int, renormalised: bool
) -> None:
    torch.manual_seed(count)
    scores = torch.randn(rows, count + 5, device=device)[:, :count] * 3
    chosen, weights = choose_experts(scores, top_k, renormalised=renormalised)
    experts = Experts(count, top_k, 8, renormalised, (True,))
    expected, expected_weights = route(scores, experts)
    assert torch.equal(chosen.long(), expected)
    torch.testing.assert_close(weights, expected_weights, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_whatever_the_scores_experts_exist(device: torch.device, bad: float) -> None:
    chosen, _ = choose_experts(torch.full((2, 5), bad, device=device), 3, renormalised=True)
    assert ((chosen >= 0) & (chosen < 5)).all()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_pair_lies_in_one_tile_of_its_expert(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    top_k = data.draw(st.integers(1, count))
    rows = data.draw(st.integers(1, 60))
    chosen = torch.tensor(
        [data.draw(st.permutations(range(count)))[:top_k] for _ in range(rows)], dtype=torch.int32
    )
    groups = group(chosen, count, 16)
    begins, ends = groups.begins.tolist(), groups.tile_ends.tolist()
    assert sorted(groups.order.tolist()) == list(range(rows * top_k))
    for expert in range(count):
        pairs = groups.order[begins[expert] : begins[expert + 1]]
        assert (chosen.flatten()[pairs] == expert).all()
        tiles = ends[expert] - (ends[expert - 1] if expert else 0)
        assert tiles == -(-len(pairs) // 16)
    assert ends[-1] <= groups.tiles
