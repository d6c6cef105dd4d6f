"""Steps of a few sizes serve every batch, with little padding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.gpu.graphs import graph_replays, padded_sizes, token_sizes


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


@given(st.integers(1, 1024))
def test_every_step_with_prompts_has_a_size_that_costs_little_more(largest: int) -> None:
    sizes = token_sizes(largest)
    assert sizes == sorted(set(sizes))
    assert len(sizes) <= 14
    below, padded = ([0, *sizes])[-2:]
    assert below < largest <= padded
    assert padded <= max(2 * largest, 16) if largest <= 200 else padded < 1.3 * largest


def test_a_step_beyond_the_largest_size_is_refused() -> None:
    with pytest.raises(ValueError, match="1025 tokens"):
        token_sizes(1025)


def test_on_a_cpu_a_step_is_run_as_it_is_and_not_before_it_is_wanted() -> None:
    ran: list[int] = []
    also: list[int] = []
    first, second = graph_replays([ran.append, also.append], [1, 2, 4], torch.device("cpu"))
    assert not ran
    first(2)
    assert (ran, also) == ([2], [])
    second(4)
    assert (ran, also) == ([2], [4])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_recorded_steps_hand_each_other_what_lies_outside_their_common_memory(
    device: torch.device,
) -> None:
    given, between, result = (torch.zeros(8, device=device) for _ in range(3))

    def first(size: int) -> None:
        between[:size].copy_((given[:size] + 1) * 2)

    def second(size: int) -> None:
        scratch = torch.full((4, size), 100.0, device=device)
        result[:size].copy_(between[:size] + scratch.sum(0))

    compute, finish = graph_replays([first, second], [2, 8], device)
    for size in (8, 2, 8):
        given.copy_(torch.arange(8.0))
        result.zero_()
        compute(size)
        finish(size)
        expected = [(number + 1) * 2 + 400.0 for number in range(size)]
        assert result.tolist() == expected + [0.0] * (8 - size)
