"""The outputs for a connection, accumulated until its next message."""

from __future__ import annotations

import struct

import msgspec

from engine.messages import (
    Admitted,
    Embedded,
    EngineStats,
    Finished,
    PromptLogprobs,
    StepOutputs,
    StepPhase,
    TokenLogprobs,
)
from engine.queueing import Moved, Prefilled
from engine.step.step import StepPlan


class Outbox(msgspec.Struct, eq=False):
    """Outputs not sent to a connection yet."""

    handles: list[int] = msgspec.field(default_factory=list)
    token_ids: list[int] = msgspec.field(default_factory=list)
    logprobs: dict[int, TokenLogprobs] = msgspec.field(default_factory=dict)
    prompt_logprobs: list[PromptLogprobs] = msgspec.field(default_factory=list)
    embedded: list[Embedded] = msgspec.field(default_factory=list)
    admitted: list[Admitted] = msgspec.field(default_factory=list)
    prefilled: list[Prefilled] = msgspec.field(default_factory=list)
    preempted: list[Moved] = msgspec.field(default_factory=list)
    resumed: list[Moved] = msgspec.field(default_factory=list)
    finished: list[Finished] = msgspec.field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (
            self.handles
            or self.finished
            or self.admitted
            or self.prefilled
            or self.prompt_logprobs
            or self.preempted
            or self.resumed
        )


class StepFigures(msgspec.Struct, frozen=True):
    """Facts about one step; all zero if no forward pass ran."""

    phase: StepPhase | None = None
    seconds: float = 0.0
    tokens: int = 0
    sequences: int = 0


def phase_of(plan: StepPlan) -> StepPhase:
    """Return the phase: DECODE if the step only adds one token to each output, PREFILL if it does
    so for none."""
    decodes = sum(
        item.num_tokens == 1 and item.start >= item.sequence.num_prompt_tokens
        for item in plan.scheduled
    )
    if decodes == len(plan.scheduled):
        return StepPhase.DECODE
    return StepPhase.MIXED if decodes else StepPhase.PREFILL


def step_outputs(box: Outbox, figures: StepFigures, stats: EngineStats) -> StepOutputs:
    """Return the message with everything in an outbox."""
    count = len(box.handles)
    return StepOutputs(
        time=stats.time,
        handles=struct.pack(f"<{count}q", *box.handles),
        token_ids=struct.pack(f"<{count}i", *box.token_ids),
        logprobs=box.logprobs,
        prompt_logprobs=box.prompt_logprobs,
        embedded=box.embedded,
        admitted=box.admitted,
        prefilled=box.prefilled,
        preempted=box.preempted,
        resumed=box.resumed,
        finished=box.finished,
        phase=figures.phase,
        step_seconds=figures.seconds,
        step_tokens=figures.tokens,
        step_sequences=figures.sequences,
        stats=stats,
    )
