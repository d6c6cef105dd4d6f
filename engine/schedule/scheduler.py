"""Decides which tokens of which sequences the next step computes, and in which KV cache blocks.

One step mixes decodes and prefill chunks under a token budget, of which prompt tokens with logprobs
take what they cost, in this order:

1. Every running sequence whose next token can be sampled gets its one token: prompts never delay
   running streams.
2. Running sequences with more to compute (a prompt, or everything after a preemption) get chunks
   of it. If there are decodes, the prompt tokens of running and new sequences are limited by
   ``engine.schedule.pacing``.
3. Waiting sequences are admitted in the order of ``engine.schedule.waiting`` while slots, budget
   and blocks last. The head of the queue waits for room and is not overtaken. If it lacks a slot,
   a running sequence of a less urgent class that has no token yet returns to the queue.

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
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from msgspec import structs

from engine.messages import EngineCounters, PrefixMissReason
from engine.queueing import WaitingReason
from engine.schedule.blocks import BlockCounts
from engine.schedule.pacing import PrefillPacer
from engine.schedule.prefix import PrefixCache
from engine.schedule.waiting import WaitingQueue
from engine.step.sequence import Sequence
from engine.step.step import PENDING, ScheduledSequence, StepPlan


@dataclass(slots=True)
class _Draft:
    """A step being planned."""

    prefix: PrefixCache
    budget: int  # in plain tokens; the last item may exceed it
    prompt_logprob_work: float
    extra_work: int = 0  # as in StepPlan
    items: dict[int, ScheduledSequence] = field(default_factory=dict)  # by uid
    admitted: list[Sequence] = field(default_factory=list)
    resumed: list[Sequence] = field(default_factory=list)
    preempted: set[int] = field(default_factory=set)  # uids

    def take(self, sequence: Sequence, num_tokens: int, restores: int | None = None) -> None:
        start = sequence.num_computed_tokens
        completes = start + num_tokens == len(sequence.token_ids)
        self.items[sequence.uid] = ScheduledSequence(
            sequence, start, num_tokens, completes, sequence.num_preemptions, restores
        )
        self.budget -= num_tokens
        if num_tokens > 1:  # this check is cheaper than the call
            self._spend(self._extra_work(sequence, num_tokens))

    def next_part(self, sequence: Sequence) -> int:
        """Return how many of a sequence's next tokens this step may compute."""
        remaining = len(sequence.token_ids) - sequence.num_computed_tokens
        most = self.budget
        if sequence.params.prompt_logprobs is not None:
            most = max(1, int(most / self.prompt_logprob_work))
        return self.prefix.cut(sequence, min(remaining, most))

    def drop(self, sequence: Sequence) -> None:
        self.preempted.add(sequence.uid)
        item = self.items.pop(sequence.uid, None)
        if item is not None:
            self.budget += item.num_tokens
            if item.num_tokens > 1:
                self._spend(-self._extra_work(sequence, item.num_tokens))

    def _extra_work(self, sequence: Sequence, num_tokens: int) -> int:
        if sequence.params.prompt_logprobs is None:
            return 0
        return round(num_tokens * (self.prompt_logprob_work - 1))

    def _spend(self, extra_work: int) -> None:
        self.budget -= extra_work
        self.extra_work += extra_work

    def plan(self, preempted: tuple[Sequence, ...]) -> StepPlan:
        items = tuple(self.items.values())
        if self.prefix.snapshots is not None:
            items = tuple(map(self._saving, items))
        admitted, resumed = tuple(self.admitted), tuple(self.resumed)
        return StepPlan(items, admitted, resumed, preempted, self.extra_work)

    def _saving(self, item: ScheduledSequence) -> ScheduledSequence:
        """Decide whether the state after an item is kept."""
        slot = self.prefix.reserve(item.sequence, item.end)
        return item if slot is None else structs.replace(item, saves=slot)


_MISSED = {reason: f"prefix_missed_{reason.value}" for reason in PrefixMissReason}
_rank = operator.attrgetter("rank")


def _count_missed(counters: EngineCounters, reason: PrefixMissReason, sequence: Sequence) -> None:
    """Count the prompt tokens that were not cached when a sequence was first admitted."""
    missed = sequence.num_prompt_tokens - sequence.num_cached_tokens
    name = _MISSED[reason]
    setattr(counters, name, getattr(counters, name) + missed)


def _missing_blocks(sequences: Iterable[Sequence], size: int) -> int:
    return sum(-(-one.num_tokens // size) - len(one.block_table) for one in sequences)


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
        # Blocks that running prompts will need; admitting on them would only lead to preemption.
        self._promised = 0
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
        # As in ``_fits``: each needs one block more once it runs.
        blocks = self.pool.num_available - self._promised - len(self.running)
        return min(slots, max(0, blocks // (self._num_blocks(num_tokens) + 1)))

    # --- schedule ----------------------------------------------------------------------------

    def schedule(self, now: float, sitting_out: Set[int] = frozenset()) -> StepPlan:
        """Plan the next step and allocate its blocks. ``sitting_out``: uids of sequences to leave
        out, which keep their blocks. Empty only if there is no other work."""
        work = self._waiting.prompt_logprob_work
        draft = _Draft(self.prefix, self.max_num_batched_tokens, work)
        self.prefix.begin_step(now)
        prefilling = self._continue_decodes(draft, sitting_out)
        if self._pacer is not None and draft.items and (prefilling or self._waiting):
            draft.budget = min(draft.budget, self._pacer.budget(len(draft.items)))
        self._continue_prefills(draft, prefilling)
        kept = (each for each in prefilling if each.uid not in draft.preempted)
        self._promised = _missing_blocks(kept, self.block_size)
        self.waiting_reason = self._admit(draft, now) if self._waiting else None
        if draft.items:
            self.counters.steps += 1
        preempted, self._preempted = self._preempted, ()
        return draft.plan(preempted)

    def _continue_decodes(self, draft: _Draft, sitting_out: Set[int]) -> list[Sequence]:
        """Plan each decoding sequence's token; return the sequences that have more to compute."""
        prefilling = []
        running, size = self.running, self.block_size
        index = 0
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

    def _continue_prefills(self, draft: _Draft, prefilling: list[Sequence]) -> None:
        for sequence in prefilling:
            if draft.budget <= 0:
                return
            if sequence.uid in draft.preempted:
                continue
            if room := self._make_room(sequence, draft.next_part(sequence), draft):
                draft.take(sequence, room)

    def _admit(self, draft: _Draft, now: float) -> WaitingReason | None:
        """Admit waiting sequences; return why the head of the queue still waits, if there is
        one."""
        if self._waiting.is_shared:
            self._waiting.settle(self.running)
        while (head := self._waiting.head()) is not None:
            if len(self.running) >= self.max_num_seqs and not self._yield_slot(head, draft):
                return WaitingReason.SLOTS
            if draft.budget <= 0:
                return WaitingReason.BUDGET
            hits = self.prefix.match(head)
            if not self._fits(head, hits):
                return WaitingReason.KV_BLOCKS
            self._start(self._waiting.pop(), hits, draft, now)
            self._promised += _missing_blocks((head,), self.block_size)
        return None

    def _yield_slot(self, head: Sequence, draft: _Draft) -> bool:
        """Preempt a sequence of a less urgent class, if there is one that may be."""
        if (yielding := self._waiting.yields_to(head, self.running)) is not None:
            draft.drop(yielding)
            self._promised -= _missing_blocks((yielding,), self.block_size)
            self.preempt(yielding, overtaken=True)
        return yielding is not None

    def _fits(self, sequence: Sequence, hits: list[int]) -> bool:
        """True if there are blocks for all tokens of a waiting sequence, besides those promised to
        others and one more for each running sequence, so that it is not preempted at once."""
        # A hit that no sequence holds counts as available, so it must also count as needed.
        shared = sum(1 for block in hits if self.pool.ref_count(block))
        needed = self._num_blocks(sequence.num_tokens) - shared
        return needed + self._promised + len(self.running) <= self.pool.num_available

    def _start(self, sequence: Sequence, hits: list[int], draft: _Draft, now: float) -> None:
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

    def _make_room(self, sequence: Sequence, num_tokens: int, draft: _Draft) -> int:
        """Allocate blocks for the sequence's next tokens; return how many tokens fit.

        Preempts only to avoid returning 0, and only sequences that rank below this one.
        """
        table, size = sequence.block_table, self.block_size
        computed = sequence.num_computed_tokens
        if computed + num_tokens <= len(table) * size:  # true for nearly every decode
            return num_tokens
        missing = self._num_blocks(computed + num_tokens) - len(table)
        while missing > 0:
            if self.pool.num_available:
                table.append(self.pool.allocate())
                missing -= 1
            elif len(table) * size > computed or not self._preempt_below(sequence, draft):
                break
        return min(num_tokens, len(table) * size - computed)

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    # --- preempt -----------------------------------------------------------------------------

    def _preempt_below(self, sequence: Sequence, draft: _Draft) -> bool:
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
        needed = self._num_blocks(len(sequence.token_ids))
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
        return self.pool.allocate_all(self._num_blocks(num_tokens))

    def take_back(self, blocks: list[int]) -> None:
        """Release blocks that were lent."""
        for block in blocks:
            self.pool.release(block)
