"""Sends a step's plan from rank 0 to the other ranks: each has its own copy of every sequence, and
a message contains only the changes."""

from __future__ import annotations

from dataclasses import dataclass

from engine.messages import Embed, SamplingParams
from engine.ranks.messages import NewSequence, Planned, RankStep
from engine.sampling.device import is_always_plain
from engine.sampling.params import is_plain_greedy
from engine.step.sequence import Sequence
from engine.step.step import PENDING, ScheduledSequence, StepPlan

_EMBED = Embed()


@dataclass(slots=True)
class _Known:
    """What the other ranks know about a sequence. ``tokens``: excludes one that is still
    pending."""

    tokens: int
    preemptions: int
    blocks: int
    last_block: int


class StepWriter:
    """Rank 0's side. Every message must be sent to all other ranks; none may be skipped."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._forgotten: list[int] = []
        self._number = 0

    def write(self, plan: StepPlan, *, ahead: bool, clears_blocks: bool) -> RankStep:
        self._number += 1
        forgotten, self._forgotten = self._forgotten, []
        new = [
            _described(item.sequence)
            for item in plan.scheduled
            if item.sequence.uid not in self._known
        ]
        planned = [self._planned(item) for item in plan.scheduled]
        return RankStep(self._number, ahead, planned, new, forgotten, clears_blocks)

    def forget(self, uid: int) -> None:
        """Drop a sequence that is no longer planned."""
        if self._known.pop(uid, None) is not None:
            self._forgotten.append(uid)

    def _planned(self, item: ScheduledSequence) -> Planned:
        sequence = item.sequence
        table, preemptions = sequence.block_table, sequence.num_preemptions
        known = self._known.get(sequence.uid)
        if known is None:
            known = self._known[sequence.uid] = _Known(0, preemptions, 0, -1)
        tokens = sequence.token_ids
        tokens_kept = min(known.tokens, len(tokens))
        # A table changes only at its end, until its sequence is preempted.
        kept = known.blocks if known.preemptions == preemptions else 0
        if kept > len(table) or (kept and table[kept - 1] != known.last_block):
            kept = 0
        planned = Planned(
            sequence.uid,
            preemptions,
            item.start,
            item.num_tokens,
            item.completes,
            tokens_kept,
            tokens[tokens_kept:],
            kept,
            table[kept:],
        )
        known.tokens = len(tokens) - (tokens[-1] == PENDING)
        known.preemptions = preemptions
        known.blocks, known.last_block = len(table), table[-1] if table else -1
        return planned


def _described(sequence: Sequence) -> NewSequence:
    return NewSequence(
        sequence.uid,
        sequence.num_prompt_tokens,
        is_plain_greedy(sequence),
        sequence.params.prompt_logprobs is not None,
        sequence.embed is not None,
        is_always_plain(sequence),
    )


class StepReader:
    """The other ranks' side. Its sequences have what the runner needs to compute the same as rank
    0; of the sampling parameters they only know whether sampling is greedy, and whether plain."""

    def __init__(self) -> None:
        self._sequences: dict[int, Sequence] = {}

    def read(self, step: RankStep) -> StepPlan:
        for uid in step.forgotten:
            del self._sequences[uid]
        for new in step.new:
            self._sequences[new.uid] = _copy(new)
        return StepPlan(tuple(self._scheduled(planned) for planned in step.planned))

    def _scheduled(self, planned: Planned) -> ScheduledSequence:
        sequence = self._sequences[planned.uid]
        sequence.token_ids[planned.tokens_kept :] = planned.tokens
        sequence.num_preemptions = planned.preemptions
        sequence.block_table[planned.blocks_kept :] = planned.blocks
        return ScheduledSequence(
            sequence, planned.start, planned.num_tokens, planned.completes, planned.preemptions
        )


def _copy(new: NewSequence) -> Sequence:
    return Sequence(
        uid=new.uid,
        request_id=f"sequence {new.uid} of rank 0",
        token_ids=[],
        num_prompt_tokens=new.num_prompt_tokens,
        params=SamplingParams(
            max_tokens=1,
            temperature=0.0 if new.greedy else 1.0,
            logprobs=None if new.plain else 0,
            prompt_logprobs=0 if new.reports_prompt else None,
        ),
        embed=_EMBED if new.embeds else None,
    )
