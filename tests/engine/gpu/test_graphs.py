"""Steps of a few sizes serve every batch, with little padding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.gpu.graphs import graph_replay, padded_sizes


@given(st.integers(1, 2000))
def test_every_batch_has_a_size_that_is_not_much_larger(largest: int) -> None:
    sizes = padded_sizes(largest)
    assert sizes == sorted(set(sizes))
    assert largest <= sizes[-1] < largest + 16
    for batch in range(1, largest + 1):
        padded = min(size for size in sizes if size >= batch)
        assert padded < max(2 * batch, batch + 16)


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [(1, [1]), (5, [1, 2, 4, 5]), (8, [1, 2, 4, 8]), (33, [1, 2, 4, 8, 16, 32, 48])],
)
def test_sizes_are_as_documented(largest: int, sizes: list[int]) -> None:
    assert padded_sizes(largest) == sizes


def test_on_a_cpu_a_step_is_run_as_it_is_and_not_before_it_is_wanted() -> None:
    ran: list[int] = []
    step = graph_replay(ran.append, [1, 2, 4], torch.device("cpu"))
    assert not ran
    step(2)
    assert ran == [2]
