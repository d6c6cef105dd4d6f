"""What is kept of a sequence is bounded, and what says most is kept."""

from __future__ import annotations

from observability.admin_api import EventKind
from service.engine.happenings import MOST_HAPPENINGS, Happening, note


def gap(seconds: float) -> Happening:
    return Happening(EventKind.GAP, 1.0, seconds)


def test_longer_gaps_replace_shorter_ones() -> None:
    happenings: list[Happening] = []
    for seconds in range(1, MOST_HAPPENINGS + 3):
        note(happenings, gap(seconds))
    assert len(happenings) == MOST_HAPPENINGS
    assert min(one.value for one in happenings) == 3
    note(happenings, gap(1))
    assert min(one.value for one in happenings) == 3


def test_anything_else_replaces_the_shortest_gap_and_nothing_replaces_the_rest() -> None:
    happenings = [gap(2.0)] + [Happening(EventKind.PREEMPTED, 1.0)] * (MOST_HAPPENINGS - 1)
    note(happenings, Happening(EventKind.RESUMED, 2.0))
    note(happenings, Happening(EventKind.RESUMED, 3.0))
    assert len(happenings) == MOST_HAPPENINGS
    assert gap(2.0) not in happenings
    assert happenings[-1] == Happening(EventKind.RESUMED, 2.0)
