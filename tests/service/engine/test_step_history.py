"""The longest steps and gaps of any time up to now are those of a naive search."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.happenings import LongStep
from service.engine.step_history import LONGEST_STEPS, StepHistory

_durations = st.lists(st.integers(1, 30), min_size=1, max_size=400)


@settings(deadline=None)
@given(_durations, st.data())
def test_the_longest_steps_of_a_life_are_found(durations: list[int], data: st.DataObject) -> None:
    history, steps = StepHistory(), []
    for time, seconds in enumerate(durations, start=1):
        steps.append(LongStep(float(time), float(seconds), 1, 1))
        history.add_step(*steps[-1])
        if data.draw(st.integers(0, 20)) == 0:
            begin = data.draw(st.integers(0, time))
            found = history.longest_steps(begin)
            life = sorted((one.seconds for one in steps if one.time > begin), reverse=True)
            assert [one.seconds for one in found] == life[:LONGEST_STEPS]


@given(_durations, st.integers(0, 400))
def test_the_longest_gap_is_found(gaps: list[int], first: int) -> None:
    history, now, times = StepHistory(), 0.0, [0.0]
    for gap in [0, *gaps]:
        now += gap
        times.append(now)
        history.add_tokens(now, after_others=len(times) > 2)
    begin = times[1 + first % (len(times) - 1)]
    life = [time for time in times[1:] if time >= begin]
    expected = max((b - a for a, b in pairwise(life)), default=0.0)
    assert history.longest_gap(begin) == expected


def test_a_gap_is_long_beyond_five_medians() -> None:
    history = StepHistory()
    for number in range(16):
        assert history.long_gap == float("inf")
        history.add_tokens(number * 0.25, after_others=True)
    assert history.long_gap == 5 * 0.25


def test_time_without_readers_is_no_gap() -> None:
    history = StepHistory()
    history.add_tokens(1.0, after_others=False)
    history.add_tokens(100.0, after_others=False)
    history.add_tokens(101.0, after_others=True)
    assert history.longest_gap(0.5) == 1.0
    assert history.token_time == 101.0


def test_memory_is_bounded_when_each_step_is_shorter_than_the_one_before() -> None:
    history = StepHistory()
    for time in range(20_000):
        history.add_step(float(time), 1e6 - time, 1, 1)
        history.add_tokens(time + (1e5 - time) / 1e6, after_others=True)
    assert len(history._steps) < 6_000
    assert len(history._gaps) < 6_000
