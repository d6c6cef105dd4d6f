"""A request's choices: their seeds, and their life from submission to the last event."""

from __future__ import annotations

from service.generation.request import choice_seed


def test_choices_have_seeds_of_their_own_and_the_first_has_the_requests() -> None:
    seeds = [choice_seed(42, index) for index in range(64)]
    assert seeds[0] == 42
    assert len(set(seeds)) == 64
    assert all(
        0 <= choice_seed(seed, index) < 2**63
        for seed in (-1, -(2**63), 2**63 - 1)
        for index in (0, 1)
    )
