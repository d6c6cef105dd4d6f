"""Which states of a hybrid's layers are kept for sequences that share a prefix, and in which slots.

Cached blocks of a hybrid are of use only together with the state after them. So a state is kept at
some block boundaries, under the name of the block that ends there (``engine.block_names``): a
prefix is found as far as it has both. States are in the runner, in as many slots as fit in their
memory. A plan says from which slot a sequence starts, and in which slot the state after a part is
stored (``ScheduledSequence``); so, as with blocks, only numbers leave the scheduler.

A state exists only where a part ends, so parts of prompts are cut at these boundaries:

- every ``interval`` tokens, also while a sequence generates; with long prompts, every two, four, …
  intervals;
- once near a prompt's end, ``near`` tokens to twice as many before it: other prompts often have all
  but the last few tokens in common, as with a question after the same instructions;
- where cached blocks ended that had no state: another prompt branched off there, and more may come.

These are few, as a cut costs more than a step: some layers compute in chunks of 256 tokens, however
few there are (Mamba 2).

The least recently used slot is reused first, but never one that the step being planned reads or
writes. No other step is running meanwhile: hybrids are not planned ahead.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from engine.step.sequence import Sequence

# Tokens. With fewer, states take more memory than the blocks between them; with more, a preempted
# sequence computes more again, and so does a prompt that branches off for the first time.
INTERVAL = 512
# A state is also kept within one to two of these fractions of it before a prompt's end.
_NEAR = 8
NEAREST = INTERVAL // _NEAR  # Few states are fewer tokens apart.
# Cuts of a prompt that the interval makes. Each costs a step.
_MOST_CUTS = 16


@dataclass(slots=True)
class _Slot:
    """``step``: the last one that was planned to use it. ``is_filled``: a step has written it."""

    number: int
    step: int
    is_filled: bool = False


class Snapshots:
    def __init__(self, num_slots: int, block_size: int, interval: int = INTERVAL) -> None:
        """``interval``: rounded to whole blocks."""
        if num_slots < 1:
            raise ValueError(f"{num_slots} slots for snapshots")
        self.num_slots = num_slots
        self._size = block_size
        self.interval = self._whole_blocks(interval)
        self._free = list(range(num_slots - 1, -1, -1))
        self._slots: OrderedDict[bytes, _Slot] = OrderedDict()  # least recently used first
        self._step = 0

    def __len__(self) -> int:
        """The number of states that may be found."""
        return sum(slot.is_filled for slot in self._slots.values())

    def begin_step(self) -> None:
        """Record that another step is planned."""
        self._step += 1

    # --- where -------------------------------------------------------------------------------

    def cut(self, sequence: Sequence, num_tokens: int) -> int:
        """Return how many of a sequence's next ``num_tokens`` to compute, so that they end at the
        first boundary among them."""
        start = sequence.num_computed_tokens
        ends = self._ends(sequence)
        interval = self._interval_of(sequence)
        ends.add((start // interval + 1) * interval)
        return min(num_tokens, *(end - start for end in ends if end > start))

    def is_boundary(self, sequence: Sequence, end: int) -> bool:
        """True if the state after ``end`` tokens is to be kept."""
        if end % self._size:
            return False
        return end % self._interval_of(sequence) == 0 or end in self._ends(sequence)

    @property
    def near(self) -> int:
        """A gap of fewer tokens than this is not worth a state."""
        return self._whole_blocks(self.interval // _NEAR)

    def _interval_of(self, sequence: Sequence) -> int:
        """Return how far boundaries are apart. One sequence's are among those of a shorter one."""
        interval, most = self.interval, min(_MOST_CUTS, max(1, self.num_slots // 2))
        while sequence.num_prompt_tokens > interval * (most + 1):
            interval *= 2
        return interval

    def _ends(self, sequence: Sequence) -> set[int]:
        """Return the boundaries of a sequence besides those at every ``interval``."""
        near = self.near
        last = (sequence.num_prompt_tokens - 1 - near) // near * near
        return {end for end in (last, sequence.num_matched_tokens) if end > 0}

    def _whole_blocks(self, num_tokens: int) -> int:
        return max(1, num_tokens // self._size) * self._size

    # --- which -------------------------------------------------------------------------------

    def __contains__(self, name: bytes) -> bool:
        slot = self._slots.get(name)
        return slot is not None and slot.is_filled

    def use(self, name: bytes) -> int:
        """Return the slot of a state that the step being planned starts from."""
        return self._touch(name)

    def reserve(self, name: bytes) -> int | None:
        """Return the slot for a state that the step being planned computes; None if it is not to be
        kept: it is there already or on its way, or every slot is in use."""
        slot = self._slots.get(name)
        if slot is not None:
            # If it is neither filled nor on its way, the step that was to fill it did not.
            if slot.is_filled or self._is_in_use(slot):
                return None
            return self._touch(name)
        if self._free:
            number = self._free.pop()
        else:
            oldest = next(iter(self._slots))
            if self._is_in_use(self._slots[oldest]):
                return None
            number = self._slots.pop(oldest).number
        self._slots[name] = _Slot(number, self._step)
        return number

    def filled(self, name: bytes, number: int) -> None:
        """Record that a step has written this slot, which was reserved for ``name``."""
        slot = self._slots.get(name)
        if slot is not None and slot.number == number:
            slot.is_filled = True

    def drop(self, name: bytes) -> None:
        """Drop the state of this name, if there is one: its block was evicted."""
        slot = self._slots.pop(name, None)
        if slot is not None:
            self._free.append(slot.number)

    def _touch(self, name: bytes) -> int:
        self._slots.move_to_end(name)
        slot = self._slots[name]
        slot.step = self._step
        return slot.number

    def _is_in_use(self, slot: _Slot) -> bool:
        return slot.step >= self._step
