"""Sequences of a small vocabulary, a sampler for them, and logits."""

from __future__ import annotations

from typing import Any

import torch

from engine.messages import SamplingParams
from engine.sampling.sampler import Sampler
from engine.step.sequence import Sequence

VOCABULARY = 40
EOS = frozenset({3})
PROMPT = [5, 6, 7, 7, 8]
OUTPUT = [6, 9, 9, 9, 10]


def sampler() -> Sampler:
    return Sampler(vocab_size=VOCABULARY, eos_token_ids=EOS, device=torch.device("cpu"))


def params(**wanted: Any) -> SamplingParams:
    return SamplingParams(**({"max_tokens": 1000} | wanted))


def sequence(
    uid: int,
    wanted: SamplingParams,
    prompt: list[int] | None = None,
    output: list[int] | None = None,
) -> Sequence:
    prompt = PROMPT if prompt is None else prompt
    output = OUTPUT if output is None else output
    return Sequence(
        uid=uid,
        request_id=str(uid),
        token_ids=prompt + output,
        num_prompt_tokens=len(prompt),
        params=wanted,
    )


def some_logits(seed: int = 0, rows: int = 1) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 2
