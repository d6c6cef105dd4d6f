"""Decides which tokens of which sequences the next step computes, and in which KV cache blocks.

One step mixes decodes and prefill chunks under a token budget, of which prompt tokens with logprobs
take what they cost, in this order:

1. Every running sequence whose next token can be sampled gets its one token: prompts never delay
   running streams.
2. Running sequences with more to compute (a prompt, or everything after a preemption) get chunks
   of it. A step's prompt tokens, of running and new sequences, are limited by
   ``engine.schedule.pacing``, and half of them are for short prompts, of both
   (``engine.schedule.short_prompts``).
3. Waiting sequences are admitted in the order of ``engine.schedule.waiting`` while slots, budget
   and blocks last. The head of the queue waits for room and is overtaken only by short prompts
   (2). If it lacks a slot, a running sequence of a less urgent class that has no token yet returns
   to the queue.

Blocks are allocated as tokens need them, never for ``max_tokens`` in advance. When there is no
block for a running sequence, the lowest-priority, newest running sequence is preempted: its blocks
are released and all its tokens are computed again later. A sequence never preempts one that ranks
above it, and waits in place, keeping its blocks, when it ranks last itself; so the sequence that
ranks first always progresses, and every sequence finishes. Priority alone starves no sequence: one
is preempted for later ones at most ``MOST_OVERTAKEN`` times and from then on ranks above every
priority, and the oldest sequence in the queue gets at least every eighth turn.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, insort
from collections.abc import Set

from engine.messages import EngineCounters, PrefixMissReason
from engine.queueing import WaitingReason
from engine.schedule.blocks import BlockCounts
from engine.schedule.draft import Draft
from engine.schedule.pacing import PrefillPacer
from engine.schedule.prefix import PrefixCache
from engine.schedule.room import Room
from engine.schedule.short_prompts import ShortPrompts
from engine.schedule.waiting import WaitingQueue
from engine.step.sequence import Sequence
from engine.step.step import PENDING, ScheduledSequence, StepPlan

_MISSED = {reason: f"prefix_missed_{reason.value}" for reason in PrefixMissReason}
_rank = operator.attrgetter("rank")


def _count_missed(counters: EngineCounters, reason: PrefixMissReason, sequence: Sequence) -> None:
    """Count the prompt tokens that were not cached when a sequence was first admitted."""
    missed = sequence.num_prompt_tokens - sequence.num_cached_tokens
    name = _MISSED[reason]
    setattr(counters, name, getattr(counters, name) + missed)


def _count_cached(counters: EngineCounters, sequence: Sequence) -> None:
    """Count what the prefix cache has of a sequence that starts to run, also after a preemption:
    another sequence may have computed more of the prompt meanwhile."""
    if sequence.num_computed_tokens > sequence.max_computed_tokens:
        prompt = sequence.num_prompt_tokens
        known = min(sequence.max_computed_tokens, prompt)
        counters.prompt_tokens_cached += min(sequence.num_computed_tokens, prompt) - known
        sequence.max_computed_tokens = sequence.num_computed_tokens


def _count_computed(counters: EngineCounters, sequence: Sequence, start: int, end: int) -> None:
    fresh = max(start, sequence.max_computed_tokens)  # tokens below it are recomputed
    if fresh > start:
        counters.tokens_recomputed += min(fresh, end) - start
    prompt_end = min(end, sequence.num_prompt_tokens)
    if prompt_end > fresh:
        counters.prompt_tokens_computed += prompt_end - fresh


class Scheduler:
    """The ``Scheduling`` of a model with a KV cache.

    Owns every sequence's ``token_ids``, ``block_table`` and progress from ``add`` to ``finish``.
    """

    def __init__(
        self,
        *,
        num_kv_blocks: int,
        block_size: int,
        max_model_len: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        enable_prefix_caching: bool = True,
        num_snapshots: int = 0,
        prompt_logprob_work: float = 1.0,
        pacer: PrefillPacer | None = None,
        counters: EngineCounters | None = None,
    ) -> None:
        self._pacer = pacer
        self.block_size = block_size
        self.max_num_batched_tokens = max_num_batched_tokens
        # Every running sequence must be able to get a token in every step.
        self.max_num_seqs = min(max_num_seqs, max_num_batched_tokens)
        # The longest sequence that can run if it has the whole cache to itself.
        self.max_sequence_len = min(max_model_len, num_kv_blocks * block_size)
        self.prefix = PrefixCache(
            num_kv_blocks, block_size, enabled=enable_prefix_caching, num_snapshots=num_snapshots
        )
        self.pool = self.prefix.pool
        self._counters = counters or EngineCounters()
        self._num_generated = 0  # tokens that the counters lack
        self.waiting_reason: WaitingReason | None = None  # why the head waited in the last step
        self._waiting = WaitingQueue(prompt_logprob_work)
        self._preempted: tuple[Sequence, ...] = ()  # since the last plan
        self._room = Room(self.pool, block_size)
        self._short = ShortPrompts(self._waiting, self.prefix, self._room)
        self.running: list[Sequence] = []  # by rank, first in rank first

    @property
    def counters(self) -> EngineCounters:
        # Brought up to date here: adding to a msgspec field for each token would slow every step.
        self._counters.tokens_generated += self._num_generated
        self._num_generated = 0
        return self._counters

    @property
    def num_running(self) -> int:
        return len(self.running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        return bool(self.running) or bool(self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Raises ValueError for one that is empty or could never run."""
        if not 0 < sequence.num_tokens <= self.max_sequence_len:
            raise ValueError(
                f"a sequence of {sequence.num_tokens} tokens; 1 to {self.max_sequence_len} can run"
            )
        self._waiting.enter(sequence, self.running)

    def num_cached(self, sequence: Sequence) -> int:
        return len(self.prefix.match(sequence)) * self.block_size

    def free_slots(self, num_tokens: int) -> int:
        """Return how many waiting sequences of so many tokens could start now, as far as slots and
        blocks go."""
        slots = self.max_num_seqs - len(self.running)
        if slots <= 0 or (self.waiting_reason is WaitingReason.KV_BLOCKS and self._waiting):
            return 0
        return min(slots, self._room.for_more(num_tokens, len(self.running)))

    # --- schedule ----------------------------------------------------------------------------

    def schedule(self, now: float, sitting_out: Set[int] = frozenset()) -> StepPlan:
        """Plan the next step and allocate its blocks. ``sitting_out``: uids of sequences to leave
        out, which keep their blocks. Empty only if there is no other work."""
        draft = Draft(self.prefix, self.max_num_batched_tokens, self._waiting.prompt_logprob_work)
        self.prefix.begin_step(now)
        if self._waiting.is_shared:
            self._waiting.settle(self.running)
        prefilling = self._continue_decodes(draft, sitting_out)
        self._short.keep_first(prefilling)
        if self._pacer is not None and (prefilling or self._waiting):
            draft.limit(self._pacer.limits(len(draft.items)), prefilling, self._waiting)
        if prefilling:
            self._plan_short(draft, prefilling, now)
        self._continue_prefills(draft, prefilling)
        self._room.promise(prefilling, draft.preempted)
        self.waiting_reason = self._admit(draft, prefilling, now) if self._waiting else None
        if draft.items:
            self.counters.steps += 1
        preempted, self._preempted = self._preempted, ()
        return draft.plan(preempted)

    def _continue_decodes(self, draft: Draft, sitting_out: Set[int]) -> list[Sequence]:
        """Plan each decoding sequence's token; return the sequences that have more to compute."""
        prefilling = []
        running, size, index = self.running, self.block_size, 0
        while index < len(running):  # preemption shortens the list after index
            sequence = running[index]
            index += 1
            computed = sequence.num_computed_tokens
            if len(sequence.token_ids) - computed > 1:
                prefilling.append(sequence)
            elif sitting_out and sequence.uid in sitting_out:
                continue
            # Usually the last block has room; this check is cheaper than the call.
            elif computed < len(sequence.block_table) * size or self._make_room(sequence, 1, draft):
                draft.take(sequence, 1)
        return prefilling

    def _plan_short(self, draft: Draft, prefilling: list[Sequence], now: float) -> None:
        """Plan short prompts, those that run first. Add those that start to ``prefilling``."""
        before = draft.for_short(prefilling[0], self._counters.steps)
        self._continue_prefills(draft, self._short.running(prefilling))
        self._room.promise(prefilling, draft.preempted)
        while draft.budget > 0 and (free := self.max_num_seqs - len(self.running)) > 0:
            if (found := self._short.pop_waiting(prefilling[0], len(self.running), free)) is None:
                break
            prefilling.append(found[0])
            self._start(*found, draft, now)
        draft.for_all(*before)

    def _continue_prefills(self, draft: Draft, prefilling: list[Sequence]) -> None:
        for sequence in prefilling:
            if draft.budget <= 0:
                return
            if sequence.uid in draft.preempted or sequence.uid in draft.items:
                continue
            if room := self._make_room(sequence, draft.next_part(sequence), draft):
                draft.take(sequence, room)

    def _admit(self, draft: Draft, prefilling: list[Sequence], now: float) -> WaitingReason | None:
        """Admit waiting sequences; return why the head of the queue still waits, if there is
        one."""
        while (head := self._waiting.head()) is not None:
            if len(self.running) >= self.max_num_seqs and not self._yield_slot(head, draft):
                return WaitingReason.SLOTS
            if not draft.takes(head):
                return WaitingReason.BUDGET
            hits = self.prefix.match(head)
            if not self._room.fits(head, hits, len(self.running)):
                return WaitingReason.KV_BLOCKS
            self._short.note_start(head, hits, prefilling)
            self._start(self._waiting.pop(), hits, draft, now)
        return None

    def _yield_slot(self, head: Sequence, draft: Draft) -> bool:
        """Preempt a sequence of a less urgent class, if there is one that may be."""
        if (yielding := self._waiting.yields_to(head, self.running)) is not None:
            draft.drop(yielding)
            self._room.promised -= self._room.missing((yielding,))
            self.preempt(yielding, overtaken=True)
        return yielding is not None

    def _start(self, sequence: Sequence, hits: list[int], draft: Draft, now: float) -> None:
        restores = self.prefix.begin(sequence, hits)
        insort(self.running, sequence, key=_rank)
        if sequence.first_scheduled_time is None:
            sequence.first_scheduled_time = now
            computed = sequence.num_computed_tokens
            sequence.num_cached_tokens = min(computed, sequence.num_prompt_tokens)
            miss = sequence.prefix_miss = self.prefix.explain(sequence, len(hits))
            _count_missed(self._counters, miss.reason, sequence)
            self._waiting.charge(sequence)
            if hits:
                self.prefix.found(hits[-1])
            draft.admitted.append(sequence)
        else:
            draft.resumed.append(sequence)
        _count_cached(self._counters, sequence)
        room = self._make_room(sequence, draft.next_part(sequence), draft)
        draft.take(sequence, room, restores)
        self._room.promised += self._room.missing((sequence,))

    def _make_room(self, sequence: Sequence, num_tokens: int, draft: Draft) -> int:
        """Allocate blocks for the sequence's next tokens; return how many tokens fit.

        Preempts only to avoid returning 0, and only sequences that rank below this one.
        """
        table, size = sequence.block_table, self.block_size
        computed = sequence.num_computed_tokens
        if computed + num_tokens <= len(table) * size:  # true for nearly every decode
            return num_tokens
        missing = self._room.num_blocks(computed + num_tokens) - len(table)
        while missing > 0:
            if self.pool.num_available:
                table.append(self.pool.allocate())
                missing -= 1
            elif len(table) * size > computed or not self._preempt_below(sequence, draft):
                break
        return min(num_tokens, len(table) * size - computed)

    # --- preempt -----------------------------------------------------------------------------

    def _preempt_below(self, sequence: Sequence, draft: Draft) -> bool:
        """Preempt the sequence that ranks last, unless it is this one."""
        last = self.running[-1]
        if last is sequence:
            return False
        draft.drop(last)
        self.preempt(last, overtaken=sequence.uid > last.uid)
        return True

    def preempt(self, sequence: Sequence, *, overtaken: bool = False) -> None:
        """Return a running sequence to the queue, between steps or while one is planned.
        ``overtaken``: by a later one."""
        self._leave_running(sequence)
        sequence.num_overtaken += overtaken
        sequence.num_computed_tokens = 0
        sequence.num_preemptions += 1
        self.counters.preemptions += 1
        self._preempted += (sequence,)
        self._waiting.put_back(sequence)

    def _leave_running(self, sequence: Sequence) -> None:
        index = bisect_left(self.running, _rank(sequence), key=_rank)
        if index == len(self.running) or self.running[index] is not sequence:
            raise ValueError(f"sequence {sequence.uid} is not running")
        del self.running[index]
        self.prefix.release(sequence.block_table)
        sequence.block_table = []

    # --- update and finish -------------------------------------------------------------------

    def plan_on(self, item: ScheduledSequence) -> None:
        """Plan as if the step in progress had computed this item, although its sampled token is not
        known yet. ``update`` or ``rewind`` follows."""
        sequence = item.sequence
        if item.is_current:
            sequence.num_computed_tokens = item.end
        if item.completes and sequence.embed is None:
            sequence.token_ids.append(PENDING)

    def update(self, item: ScheduledSequence, token_id: int | None, now: float) -> None:
        """Record that the step has computed this item, and sampled ``token_id`` if not None."""
        sequence = item.sequence
        start, end = item.start, item.end
        if start < max(sequence.max_computed_tokens, sequence.num_prompt_tokens):
            _count_computed(self.counters, sequence, start, end)
        if end > sequence.max_computed_tokens:
            sequence.max_computed_tokens = end
        if item.is_current:
            if sequence.num_computed_tokens < end:  # it was not planned on
                sequence.num_computed_tokens = end
            if end // self.block_size > start // self.block_size:
                self.prefix.keep(sequence, start, end, item.saves)
        if token_id is not None:
            if end == len(sequence.token_ids):
                sequence.token_ids.append(token_id)
            else:
                sequence.token_ids[end] = token_id
            sequence.last_token_time = now
            if sequence.first_token_time is None:
                sequence.first_token_time = now
            self._num_generated += 1

    def rewind(self, item: ScheduledSequence) -> None:
        """Undo an item that the step did not compute: it must be computed again."""
        sequence = item.sequence
        if item.completes:
            del sequence.token_ids[item.end :]
        if item.is_current:
            sequence.num_computed_tokens = item.start
        elif sequence.num_computed_tokens >= len(sequence.token_ids):
            # It was readmitted meanwhile, with cached blocks that leave nothing to compute.
            self.preempt(sequence)
        needed = self._room.num_blocks(len(sequence.token_ids))
        if len(sequence.block_table) > needed:
            self.prefix.release(sequence.block_table[needed:])
            del sequence.block_table[needed:]

    def finish(self, sequence: Sequence) -> None:
        """Remove a sequence, running or waiting, finished or aborted, and free its blocks."""
        if sequence in self._waiting:
            self._waiting.discard(sequence)
        else:
            self._leave_running(sequence)
        self._waiting.leave(sequence)

    # --- blocks ------------------------------------------------------------------------------

    def block_counts(self) -> BlockCounts:
        return self.pool.counts()

    def lend_blocks(self, num_tokens: int = 1) -> list[int]:
        """Return the blocks that a sequence of so many tokens needs. Raises OutOfBlocksError."""
        return self.pool.allocate_all(self._room.num_blocks(num_tokens))

    def take_back(self, blocks: list[int]) -> None:
        """Release blocks that were lent."""
        for block in blocks:
            self.pool.release(block)
