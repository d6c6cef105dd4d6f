"""States of layers that keep something other than keys and values: one for each sequence.

A step reads a sequence's state after the tokens before it, and writes a new one; the one that it
read stays until the next step. A step may thus run again, whatever it wrote before it failed. A
sequence has at most two states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence


class StateLostError(RuntimeError):
    """A sequence continues after tokens of which no state is left."""


@dataclass(slots=True)
class _Held:
    """``states``: by the number of tokens that they are of. ``num_preemptions``: of the
    sequence when they were made; after another one they are of no use."""

    sequence: Sequence
    num_preemptions: int
    states: dict[int, Any] = field(default_factory=dict)

    @property
    def is_stale(self) -> bool:
        return self.num_preemptions != self.sequence.num_preemptions


class StatePool:
    """Not thread-safe. ``new_state``: makes the state of no tokens."""

    def __init__(self, new_state: Callable[[], Any]) -> None:
        self._new_state = new_state
        self._held: dict[int, _Held] = {}  # by uid

    @property
    def num_states(self) -> int:
        return sum(len(held.states) for held in self._held.values())

    def begin(self, items: Iterable[ScheduledSequence]) -> list[Any]:
        """Return a state for each of a step's ``items``, for the step to change: that of all tokens
        before the item's first. Raises StateLostError."""
        for uid in [uid for uid, held in self._held.items() if held.is_stale]:
            del self._held[uid]
        return [self._begin(item) for item in items]

    def forget(self, uid: int) -> None:
        """Drop the states of a finished sequence."""
        self._held.pop(uid, None)

    def _begin(self, item: ScheduledSequence) -> Any:
        sequence, start = item.sequence, item.start
        held = self._held.get(sequence.uid)
        if held is None:
            held = self._held[sequence.uid] = _Held(sequence, sequence.num_preemptions)
        before = held.states.get(start)
        if start and before is None:
            raise StateLostError(f"no state of {sequence.request_id} after {start} tokens")
        state = deepcopy(before) if start else self._new_state()
        held.states = {start: before, item.end: state} if start else {item.end: state}
        return state
