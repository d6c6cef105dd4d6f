"""The part of the engine's messages that concerns its queue and what leaves it.

Imports nothing from the engine: the service uses it without loading torch.
"""

from __future__ import annotations

import enum
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta


class ServiceClass(enum.StrEnum):
    """How urgent a sequence is, the most urgent first; ``engine.schedule.waiting`` says what each
    class gets."""

    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"


class EngineLoad(NamedTuple):
    """How busy one of several engines is. ``tokens``: of all sequences, waiting and running, that
    had arrived at ``time`` (monotonic seconds)."""

    tokens: int
    time: float


class Prefilled(NamedTuple):
    """A step computed several tokens of a sequence: of its prompt, or again after a preemption."""

    handle: int
    tokens: int


class Moved(NamedTuple):
    """A sequence left the running ones at ``time``, or came back to them."""

    handle: int
    time: float


class WaitingReason(enum.StrEnum):
    """What keeps the head of the waiting queue, and everything after it, from running."""

    SLOTS = "slots"  # max_num_seqs sequences are running
    KV_BLOCKS = "kv_blocks"  # not enough free KV cache blocks
    BUDGET = "budget"  # this step's token budget is spent
    CONSTRAINT = "constraint"  # only waiting for grammars, which delay no other sequence


class RefusalReason(enum.StrEnum):
    """Why a sequence gets no place in the queue, or loses it."""

    QUEUE_REQUESTS = "queue_requests"  # the maximum number of sequences wait
    QUEUE_TOKENS = "queue_tokens"  # waiting sequences have the maximum number of tokens
    TENANT_SHARE = "tenant_share"  # this tenant has its share, and others need places too
    DEADLINE_UNREACHABLE = "deadline_unreachable"  # its first token would come too late
    DEADLINE_PASSED = "deadline_passed"  # before its first token


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    """``retry_after``: seconds until there is likely a place; None if that is unknown. ``waiting``:
    sequences that wait, those of the tenant for ``TENANT_SHARE``."""

    reason: RefusalReason
    retry_after: int | None = None
    waiting: int = 0


class Following(msgspec.Struct, frozen=True, array_like=True):
    """What else of a request will be submitted once its first part has a place."""

    sequences: Annotated[int, Meta(ge=0)]
    prompt_tokens: Annotated[int, Meta(ge=0)]

    def part(self, queues: int) -> Following:
        """Return what each of several queues gets of it."""
        return Following(-(-self.sequences // queues), -(-self.prompt_tokens // queues))


class QueueBounds(msgspec.Struct, frozen=True, array_like=True):
    """How many sequences, and how many tokens of them, may wait for their first run. The tokens of
    one are its prompt and a bounded estimate of its output."""

    sequences: Annotated[int, Meta(ge=1)]
    tokens: Annotated[int, Meta(ge=1)]

    def part(self, queues: int) -> QueueBounds:
        """Return the bounds of each of several queues that have these together."""
        return QueueBounds(-(-self.sequences // queues), -(-self.tokens // queues))
