"""A step being planned: what it has so far, and how much more it may have."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import structs

from engine.schedule.pacing import ANY_LENGTH, PromptLimits
from engine.schedule.prefix import PrefixCache
from engine.schedule.waiting import WaitingQueue
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence, StepPlan


@dataclass(slots=True)
class Draft:
    """``budget``: in plain tokens; the last item may exceed it. ``parts``: those of them that may
    be used for parts of *long* prompts, which have more than ``length`` left."""

    prefix: PrefixCache
    budget: int
    prompt_logprob_work: float
    extra_work: int = 0  # as in StepPlan
    length: int = ANY_LENGTH
    parts: int = ANY_LENGTH
    items: dict[int, ScheduledSequence] = field(default_factory=dict)  # by uid
    admitted: list[Sequence] = field(default_factory=list)
    resumed: list[Sequence] = field(default_factory=list)
    preempted: set[int] = field(default_factory=set)  # uids

    # --- limits ------------------------------------------------------------------------------

    def limit(
        self, limits: PromptLimits, prefilling: list[Sequence], waiting: WaitingQueue
    ) -> None:
        """Limit the prompt tokens of a step that has none yet."""
        self.length = limits.length
        if limits.length < self.budget:
            first = prefilling[0] if prefilling else waiting.head()
            is_alone = len(prefilling) + len(waiting) == 1
            # Several that come at once and nearly fit into a step are not split: as soon as one is
            # a stream, the others have to wait for it.
            if first is not None and (is_alone or first.num_tokens > self.budget):
                self.parts = limits.length
        self.budget = min(self.budget, limits.prompts)

    def for_short(self, first: Sequence, step: int) -> tuple[int, int, int]:
        """Leave only the part of the budget that is for short prompts while this one is first.
        Return what ``for_all`` needs."""
        whole = self.budget
        most = min(whole, self.length) if self._is_long(first) else whole
        # Of an odd number, the odd one is for either in turn: there may be a single one.
        self.budget = (most + step % 2) // 2
        return whole, most - self.budget, self.budget

    def for_all(self, whole: int, rest: int, before: int) -> None:
        """Leave the budget for all prompts. If there are short ones, they do not wait long for the
        others in their step."""
        if self.budget == before:
            self.budget = whole
        else:
            self.budget += rest
            self.parts = min(self.parts, self.length)

    def takes(self, sequence: Sequence) -> bool:
        """True if there may be tokens for one more sequence."""
        return self.budget > 0 and (self.parts > 0 or not self._is_long(sequence))

    def next_part(self, sequence: Sequence) -> int:
        """Return how many of a sequence's next tokens this step may compute."""
        most = min(self.budget, self.parts) if self._is_long(sequence) else self.budget
        if most <= 0:
            return 0
        if sequence.params.prompt_logprobs is not None:
            most = max(1, int(most / self.prompt_logprob_work))
        remaining = len(sequence.token_ids) - sequence.num_computed_tokens
        return self.prefix.cut(sequence, min(remaining, most))

    def _is_long(self, sequence: Sequence) -> bool:
        remaining = len(sequence.token_ids) - sequence.num_computed_tokens
        return remaining + self._extra_work(sequence, remaining) > self.length

    # --- items -------------------------------------------------------------------------------

    def take(self, sequence: Sequence, num_tokens: int, restores: int | None = None) -> None:
        start = sequence.num_computed_tokens
        completes = start + num_tokens == len(sequence.token_ids)
        self.items[sequence.uid] = ScheduledSequence(
            sequence, start, num_tokens, completes, sequence.num_preemptions, restores
        )
        self.budget -= num_tokens
        if num_tokens > 1:  # this check is cheaper than the call
            self._spend(self._extra_work(sequence, num_tokens))
        if not completes:
            self.parts -= num_tokens + self._extra_work(sequence, num_tokens)

    def drop(self, sequence: Sequence) -> None:
        self.preempted.add(sequence.uid)
        item = self.items.pop(sequence.uid, None)
        if item is None:
            return
        self.budget += item.num_tokens
        extra = self._extra_work(sequence, item.num_tokens)
        if item.num_tokens > 1:
            self._spend(-extra)
        if not item.completes:
            self.parts += item.num_tokens + extra

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
