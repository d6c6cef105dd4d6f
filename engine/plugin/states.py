"""States of layers that keep something other than keys and values: one for each sequence.

A step reads a sequence's state after the tokens before it, and writes a new one; the one that it
read stays until the next step. A step may thus run again, whatever it wrote before it failed. A
sequence has at most two states.

Besides, a state may be kept in a slot as the plan says (``engine.schedule.snapshots``), for
sequences that begin with the same tokens. A state does not change after the step that wrote it, so
a slot refers to it without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

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
        self._slots: dict[int, Any] = {}
        self._held: dict[int, _Held] = {}  # by uid

    @property
    def num_states(self) -> int:
        """The states held for sequences. Some of them may be in slots as well."""
        return sum(len(held.states) for held in self._held.values())

    def begin(self, items: Iterable[ScheduledSequence]) -> list[Any]:
        """Return a state for each of a step's ``items``, for the step to change: that of all tokens
        before the item's first. Raises StateLostError."""
        for uid in [uid for uid, held in self._held.items() if held.is_stale]:
            del self._held[uid]
        # First every state is read, then slots may get others.
        begun = [(item, self._begin(item)) for item in items]
        for item, state in begun:
            if item.saves is not None:
                self._slots[item.saves] = state
        return [state for _, state in begun]

    def forget(self, uid: int) -> None:
        """Drop the states of a finished sequence, except in slots."""
        self._held.pop(uid, None)

    def num_bytes(self, uid: int) -> int:
        """Return the bytes of a sequence's newest state. All states of a model take the same."""
        states = self._held[uid].states
        found: dict[int, Tensor] = {}
        _collect(states[max(states)], found, set())
        return sum(tensor.untyped_storage().nbytes() for tensor in found.values())

    def _begin(self, item: ScheduledSequence) -> Any:
        sequence, start = item.sequence, item.start
        held = self._held.get(sequence.uid)
        if held is None:
            held = self._held[sequence.uid] = _Held(sequence, sequence.num_preemptions)
        before = held.states.get(start)
        if before is None and item.restores is not None:
            before = self._slots.get(item.restores)
        if start and before is None:
            raise StateLostError(f"no state of {sequence.request_id} after {start} tokens")
        state = deepcopy(before) if start else self._new_state()
        held.states = {start: before, item.end: state} if start else {item.end: state}
        return state


def _collect(value: Any, found: dict[int, Tensor], seen: set[int]) -> None:
    """Find the tensors in ``value``, each once."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        found[value.untyped_storage().data_ptr()] = value
    elif isinstance(value, dict):
        for each in value.values():
            _collect(each, found, seen)
    elif isinstance(value, list | tuple):
        for each in value:
            _collect(each, found, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        _collect(vars(value), found, seen)
