"""The rule by which a request goes to one of several engines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.engine.routing import SHARE, WORTH, Candidate, choose

PROMPT = 4096
engines = st.lists(
    st.tuples(st.integers(0, 100_000), st.integers(0, PROMPT), st.integers(0, 100)),
    min_size=1,
    max_size=8,
).map(lambda rows: [Candidate(number, *row) for number, row in enumerate(rows)])


def test_an_idle_server_follows_the_longest_prefix() -> None:
    assert choose([Candidate(0, 0, 16, 1), Candidate(1, 0, 64, 9)]).number == 1


def test_without_a_prefix_the_least_loaded_is_chosen_and_then_the_one_not_chosen_lately() -> None:
    assert choose([Candidate(0, 500, 0, 1), Candidate(1, 400, 0, 2)]).number == 1
    assert choose([Candidate(0, 400, 64, 3), Candidate(1, 400, 64, 2)]).number == 1


def test_a_prefix_is_worth_a_queue_of_twice_its_length() -> None:
    assert choose([Candidate(0, 2001, 1000, 0), Candidate(1, 0, 0, 0)]).number == 1
    assert choose([Candidate(0, 2000, 1000, 0), Candidate(1, 0, 0, 0)]).number == 0
    # What both have is worth nothing.
    assert choose([Candidate(0, 1000, 1000, 0), Candidate(1, 0, 900, 0)]).number == 1


def test_among_busy_engines_the_longer_prefix_counts_although_loads_differ_a_little() -> None:
    assert choose([Candidate(0, 15_000, 64, 0), Candidate(1, 10_000, 48, 0)]).number == 0
    assert choose([Candidate(0, 15_100, 64, 0), Candidate(1, 10_000, 48, 0)]).number == 1


@given(engines)
def test_the_chosen_one_is_never_busier_than_the_bound(candidates: list[Candidate]) -> None:
    chosen = choose(candidates)
    least = min(one.load for one in candidates)
    assert chosen.load <= least * (1 + SHARE) + WORTH * chosen.cached


@given(engines)
def test_no_engine_is_better_in_both_respects(candidates: list[Candidate]) -> None:
    chosen = choose(candidates)
    assert not any(one.load < chosen.load and one.cached >= chosen.cached for one in candidates)
