"""What happened to a sequence besides its tokens, as the record of its request keeps it."""

from __future__ import annotations

from typing import NamedTuple

from observability.admin_api import EventKind, Prefill


class Happening(NamedTuple):
    """``time``: monotonic seconds; ``value``: see ``EventKind``."""

    kind: EventKind
    time: float
    value: float = 0.0


class LongStep(NamedTuple):
    """An engine step that ended at ``time``. ``prefills``: the longest prompts' parts in it."""

    time: float
    seconds: float
    tokens: int
    sequences: int
    prefills: tuple[Prefill, ...] = ()


MOST_HAPPENINGS = 64  # of a sequence


def note(happenings: list[Happening], one: Happening) -> None:
    """Add a happening. If there are too many, it replaces the shortest gap, if it is longer or no
    gap."""
    if len(happenings) < MOST_HAPPENINGS:
        happenings.append(one)
        return
    gaps = [index for index, old in enumerate(happenings) if old.kind is EventKind.GAP]
    shortest = min(gaps, key=lambda index: happenings[index].value, default=None)
    if shortest is None:
        return
    if one.kind is not EventKind.GAP or one.value > happenings[shortest].value:
        del happenings[shortest]
        happenings.append(one)
