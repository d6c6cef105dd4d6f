"""What the scheduler asks the runner to do in one step, and what comes back."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import msgspec

from engine.messages import TokenLogprobs
from engine.sequence import Sequence


class ScheduledSequence(msgspec.Struct, frozen=True, eq=False):
    """Compute tokens [start, start + num_tokens) of a sequence; its block table already holds
    room for them. ``samples``: these reach the sequence's last token, so a next one is sampled."""

    sequence: Sequence
    start: int
    num_tokens: int
    samples: bool


@dataclass(frozen=True, slots=True)
class StepPlan:
    """``admitted`` are the sequences among ``scheduled`` that run for the first time."""

    scheduled: tuple[ScheduledSequence, ...]
    admitted: tuple[Sequence, ...] = ()

    @property
    def num_tokens(self) -> int:
        return sum(item.num_tokens for item in self.scheduled)


@dataclass(frozen=True, slots=True)
class SampledToken:
    token_id: int
    logprobs: TokenLogprobs | None = None


class Withheld(enum.Enum):
    """Why a sequence that should have been given a token got none, and nothing is wrong."""

    LATER = "later"  # what its grammar allows is not known yet: compute the same tokens again
    COMPLETE = "complete"  # its grammar's text is whole


@dataclass(frozen=True, slots=True)
class StepResult:
    """``sampled[i]`` belongs to ``plan.scheduled[i]``: a token, None where the item does not
    sample, why a token is withheld, or the exception that makes this one sequence fail.
    ``prompt_logprobs[i]`` holds the logprobs of the prompt tokens this step predicted, for
    sequences that ask for them."""

    sampled: list[SampledToken | Withheld | Exception | None]
    prompt_logprobs: dict[int, list[TokenLogprobs]] = field(default_factory=dict)


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
    num_kv_blocks: int  # all of them may be handed out: blocks 0 to num_kv_blocks - 1
    kv_cache_bytes: int
    eos_token_ids: frozenset[int]
    tokenizer_dir: str = ""  # where tokenizer.json lies, if there is one


class DeviceLostError(RuntimeError):
    """The accelerator cannot be used any more: no sequence can be saved, the engine must exit."""
