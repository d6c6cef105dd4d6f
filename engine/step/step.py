"""What the scheduler asks the runner to do in one step, and what comes back.

What is made for each step or token is a msgspec struct: making a frozen dataclass takes eight times
as long.
"""

from __future__ import annotations

import enum
from collections.abc import Set
from dataclasses import dataclass
from typing import Protocol

import msgspec

from engine.messages import Pooling, TokenLogprobs
from engine.step.sequence import Sequence

PENDING = -1
"""Stands in a sequence's ``token_ids`` for the token that a step under way samples."""


class ScheduledSequence(msgspec.Struct, frozen=True, eq=False):
    """Compute tokens [start, start + num_tokens) of a sequence; its block table already holds
    room for them. ``completes``: these reach the sequence's last token, so a next one is sampled,
    or its vector is made. ``num_preemptions``: the sequence's, when this was planned."""

    sequence: Sequence
    start: int
    num_tokens: int
    completes: bool
    num_preemptions: int = 0

    @property
    def end(self) -> int:
        return self.start + self.num_tokens

    @property
    def is_current(self) -> bool:
        """Whether the sequence still holds the blocks that it had when this was planned."""
        return self.num_preemptions == self.sequence.num_preemptions


class StepPlan(msgspec.Struct, frozen=True, eq=False):
    """``admitted`` are the sequences among ``scheduled`` that run for the first time."""

    scheduled: tuple[ScheduledSequence, ...]
    admitted: tuple[Sequence, ...] = ()

    @property
    def num_tokens(self) -> int:
        return sum(item.num_tokens for item in self.scheduled)


class SampledToken(msgspec.Struct, frozen=True):
    token_id: int
    logprobs: TokenLogprobs | None = None


class PooledVector(msgspec.Struct, frozen=True):
    """The vector of a sequence that asked for one: little-endian float32."""

    data: bytes


class Withheld(enum.Enum):
    """Why a sequence that should have been given a token got none, and nothing is wrong."""

    LATER = "later"  # what its grammar allows is not known yet: compute the same tokens again
    COMPLETE = "complete"  # its grammar's text is whole


Sampled = SampledToken | PooledVector | Withheld | Exception | None


class StepResult(msgspec.Struct, frozen=True):
    """``sampled[i]`` belongs to ``plan.scheduled[i]``: a token or a vector, None where the item
    does not complete its sequence, why a token is withheld, or the exception that makes this one
    sequence fail. ``prompt_logprobs[i]`` holds the logprobs of the prompt tokens this step
    predicted, for sequences that ask for them."""

    sampled: list[Sampled]
    prompt_logprobs: dict[int, list[TokenLogprobs]] = msgspec.field(default_factory=dict)


class StepUnderWay(Protocol):
    """A step that was launched: the device may still be computing it."""

    def sample(self, skipped: Set[int]) -> None:
        """Begin to choose tokens. All tokens of earlier steps are known to the host by now, none of
        a later step is launched yet. Sequences in ``skipped`` (uids) get none."""
        ...

    def result(self) -> StepResult:
        """Wait for the tokens that ``sample`` began to choose; called once."""
        ...


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model is and can hold; fixed for the life of the engine."""

    model: str
    architecture: str
    dtype: str
    device: str
    num_parameters: int
    vocab_size: int
    max_model_len: int  # tokens, prompt plus output
    block_size: int  # tokens
    num_kv_blocks: int  # blocks 0 to num_kv_blocks - 1 may be handed out; 0: an encoder, without
    kv_cache_bytes: int
    eos_token_ids: frozenset[int]
    tokenizer_dir: str = ""  # where tokenizer.json lies, if there is one
    generates: bool = True
    embedding_size: int = 0  # elements; 0: it makes no embeddings
    num_scores: int = 0  # of a sequence classifier; 0: it is none
    pooling: Pooling | None = None  # None: it pools nothing
    matryoshka_dimensions: tuple[int, ...] = ()
    tensor_parallel_size: int = 1  # devices that share the model

    @property
    def vector_size(self) -> int:
        """Elements of what an ``Embed`` is answered; 0: it cannot be."""
        return self.num_scores or self.embedding_size


class DeviceLostError(RuntimeError):
    """The accelerator cannot be used any more: no sequence can be saved, the engine must exit."""
