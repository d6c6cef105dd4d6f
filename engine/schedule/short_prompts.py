"""Which prompts need not wait until a long one has been computed.

Prompts are computed in the order of their ranks, each with all of a step's prompt tokens that those
before it leave. So others would wait until a long one has had its last step. Therefore half of a
step's prompt tokens is for *short* prompts: those with at most a quarter of the work that the first
prompt has left. The first prompt takes at most twice as long for it, and prompts of about the same
length are computed one after the other, as their mean time to the first token is then least.

A short prompt that ranks above the first one (by priority or age) would take first place once it
starts, and with it whole steps. So the long prompt stays first until it is computed.
"""

from __future__ import annotations

from engine.schedule.prefix import PrefixCache
from engine.schedule.room import Room
from engine.schedule.waiting import WaitingQueue
from engine.step.sequence import Sequence

# Of the work that the first prompt has left.
_SHORT = 0.25


class ShortPrompts:
    def __init__(self, waiting: WaitingQueue, prefix: PrefixCache, room: Room) -> None:
        self._waiting = waiting
        self._prefix = prefix
        self._room = room
        # By uid of each running prompt that ranks above the first: the uid of that first one.
        self._ahead: dict[int, int] = {}

    def keep_first(self, prefilling: list[Sequence]) -> None:
        """Move the first prompt to the front again. ``prefilling`` comes by rank, where prompts
        that started early while it was first may precede it."""
        if not self._ahead:
            return
        uids = {one.uid for one in prefilling}
        self._ahead = {
            uid: first for uid, first in self._ahead.items() if uid in uids and first in uids
        }
        if self._ahead:
            place = next(at for at, one in enumerate(prefilling) if one.uid not in self._ahead)
            prefilling.insert(0, prefilling.pop(place))

    def running(self, prefilling: list[Sequence]) -> list[Sequence]:
        """Return the short ones of the running prompts; the shortest first."""
        if len(prefilling) < 2:
            return []
        most = self._most(prefilling[0])
        left = {one.uid: self._left(one, one.num_computed_tokens) for one in prefilling[1:]}
        short = [one for one in prefilling[1:] if left[one.uid] <= most]
        return sorted(short, key=lambda one: left[one.uid])

    def pop_waiting(
        self, first: Sequence, num_running: int, free_slots: int
    ) -> tuple[Sequence, list[int]] | None:
        """Remove the foremost waiting prompt that is short while this running one is first; return
        it with its cached blocks. None if there is none, or not a slot and room for both."""
        head, most = self._waiting.head(), self._most(first)
        for sequence in self._waiting.candidates(int(most)):
            if not self._may_be_short(sequence, most):
                continue
            hits = self._prefix.match(sequence)
            if self._left(sequence, len(hits) * self._prefix.block_size) > most:
                continue
            if head is not sequence and free_slots < 2:  # the last slot is the head's
                return None
            kept = 0 if head is None or head is sequence else head.num_tokens
            if not self._room.fits(sequence, hits, num_running, kept):
                return None
            self._waiting.pop_early(sequence)
            if sequence.rank < first.rank:
                self._ahead[sequence.uid] = first.uid
            return sequence, hits
        return None

    def note_start(self, sequence: Sequence, hits: list[int], prefilling: list[Sequence]) -> None:
        """Note that the head starts, with its cached blocks: prompts with logprobs leave a few
        tokens of each step."""
        if not prefilling or sequence.rank >= prefilling[0].rank:
            return
        first = prefilling[0]
        left = self._left(sequence, len(hits) * self._prefix.block_size)
        if first.block_table and left <= self._most(first):  # it was not preempted meanwhile
            self._ahead[sequence.uid] = first.uid

    def _may_be_short(self, sequence: Sequence, most: float) -> bool:
        """False if even all that is cached would leave more. In one look: to match a prefix takes
        one for each of its blocks."""
        if sequence.params.prompt_logprobs is not None:  # nothing is read from the cache
            return self._left(sequence, 0) <= most
        surplus = len(sequence.token_ids) - int(most)
        return surplus <= 0 or self._prefix.has(sequence, surplus)

    def _most(self, first: Sequence) -> float:
        return _SHORT * self._left(first, first.num_computed_tokens)

    def _left(self, sequence: Sequence, num_computed: int) -> float:
        left = len(sequence.token_ids) - num_computed
        if sequence.params.prompt_logprobs is None:
            return left
        return left * self._waiting.prompt_logprob_work
