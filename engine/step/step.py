"""The work of one step, as planned by the scheduler for the runner, and its results.

What is created for each step or token is a msgspec struct: a frozen dataclass takes eight times as
long to create.
"""

from __future__ import annotations

import enum
from collections.abc import Set
from dataclasses import dataclass
from typing import Protocol

import msgspec

from engine.config import SIZES, StepSizes
from engine.messages import Pooling, TokenLogprobs
from engine.step.sequence import Sequence

PENDING = -1
"""A placeholder in a sequence's ``token_ids`` for the token that a step in progress samples."""


class ScheduledSequence(msgspec.Struct, frozen=True, eq=False):
    """Compute tokens [start, start + num_tokens) of a sequence; its block table already has room
    for them. ``completes``: these include the sequence's last token, so the next one is sampled, or
    its vector is computed. ``num_preemptions``: the sequence's, when this was planned.

    Of a hybrid (``engine.schedule.snapshots``): ``restores``, the slot of the state to continue
    from, None where that is the sequence's own; ``saves``, the slot for the state after these
    tokens, None if it is not to be kept for others."""

    sequence: Sequence
    start: int
    num_tokens: int
    completes: bool
    num_preemptions: int = 0
    restores: int | None = None
    saves: int | None = None

    @property
    def end(self) -> int:
        return self.start + self.num_tokens

    @property
    def is_current(self) -> bool:
        """True if the sequence still holds the blocks that it had when this was planned."""
        return self.num_preemptions == self.sequence.num_preemptions


class StepPlan(msgspec.Struct, frozen=True, eq=False):
    """``admitted``: the sequences among ``scheduled`` that run for the first time; ``resumed``:
    those that run again after a preemption. ``preempted``: since the plan before.
    ``extra_work``: of prompt logprobs, in plain tokens."""

    scheduled: tuple[ScheduledSequence, ...]
    admitted: tuple[Sequence, ...] = ()
    resumed: tuple[Sequence, ...] = ()
    preempted: tuple[Sequence, ...] = ()
    extra_work: int = 0

    @property
    def num_tokens(self) -> int:
        return sum(item.num_tokens for item in self.scheduled)


class SampledToken(msgspec.Struct, frozen=True):
    token_id: int
    logprobs: TokenLogprobs | None = None


class PooledVector(msgspec.Struct, frozen=True):
    """The vector of an embedding or score, as little-endian float32."""

    data: bytes


class Withheld(enum.Enum):
    """Why a sequence got no token, although there was no error."""

    LATER = "later"  # its allowed tokens are not known yet: compute the same tokens again
    COMPLETE = "complete"  # its grammar's text is complete


Sampled = SampledToken | PooledVector | Withheld | Exception | None


class StepResult(msgspec.Struct, frozen=True):
    """``sampled[i]`` belongs to ``plan.scheduled[i]``: a token or a vector, None if the item does
    not complete its sequence, the reason why a token is withheld, or the exception with which this
    one sequence fails. ``prompt_logprobs[i]`` has the logprobs of the prompt tokens that this step
    predicted, for sequences that request them."""

    sampled: list[Sampled]
    prompt_logprobs: dict[int, list[TokenLogprobs]] = msgspec.field(default_factory=dict)


class StepUnderWay(Protocol):
    """A launched step, which the device may still be computing."""

    def sample(self, skipped: Set[int]) -> None:
        """Start sampling tokens. All tokens of earlier steps are known to the host by now, and no
        later step has been launched. Sequences in ``skipped`` (uids) get none."""
        ...

    def result(self) -> StepResult:
        """Wait for the tokens of ``sample``; called once."""
        ...


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The properties and limits of a loaded model; constant for the life of the engine."""

    model: str
    architecture: str
    dtype: str
    device: str
    num_parameters: int
    vocab_size: int
    max_model_len: int  # tokens, prompt plus output
    block_size: int  # tokens
    num_kv_blocks: int  # blocks 0 to num_kv_blocks - 1 may be allocated; 0: an encoder, without
    kv_cache_bytes: int
    eos_token_ids: frozenset[int]
    tokenizer_dir: str = ""  # the directory with tokenizer.json, if there is one
    generates: bool = True
    prompt_logprob_work: float = 1.0  # of a prompt token with logprobs, in plain tokens
    step_seconds: float | None = None  # what a step of prompts alone should take; None: anything
    embedding_size: int = 0  # elements; 0: not supported
    num_scores: int = 0  # of a sequence classifier; 0: not a classifier
    pooling: Pooling | None = None  # None: no pooling
    matryoshka_dimensions: tuple[int, ...] = ()
    tensor_parallel_size: int = 1  # devices that share the model
    shares_prefixes: bool = True  # False: cached blocks are of no use to other sequences
    num_snapshots: int = 0  # slots for states of a hybrid's layers; 0: it has none
    implementation: str = "native"  # or transformers, simulated: whose code computes it
    quantization: str = ""  # how weights are stored or made small, in words; empty: floats
    unserved_inputs: tuple[str, ...] = ()  # what the checkpoint reads besides text: image, ...
    default_sizes: StepSizes = SIZES  # where the configuration says nothing

    @property
    def vector_size(self) -> int:
        """Elements of an ``Embed``'s result; 0: not supported."""
        return self.num_scores or self.embedding_size


class DeviceLostError(RuntimeError):
    """The accelerator cannot be used any more: no sequence can be saved, the engine must exit."""
