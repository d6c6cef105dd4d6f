"""The sampling kernel's parameters as arrays on its device, and the check whether a row can use
it."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.device.sending import sent
from engine.messages import SamplingParams
from engine.sampling.params import is_greedy, is_penalised
from engine.step.sequence import Sequence


@dataclass(frozen=True, slots=True)
class SamplingTensors:
    """One row for each sequence of a batch."""

    temperature: Tensor  # float32 [rows]; 0: the most likely token
    log_min_p: Tensor  # float32 [rows]; -inf if off
    top_k: Tensor  # int32 [rows]; 0 if off
    top_p: Tensor  # float64 [rows]; 1 if off
    seeds: Tensor  # int64 [rows], the bits of unsigned ones

    def rows(self, count: int) -> SamplingTensors:
        """Return the first ``count`` rows, as views."""
        return SamplingTensors(
            self.temperature[:count],
            self.log_min_p[:count],
            self.top_k[:count],
            self.top_p[:count],
            self.seeds[:count],
        )


@dataclass(frozen=True, slots=True)
class Draws:
    """What the sampling kernel reads: a row for each token to be sampled. ``positions``: int32
    [rows], those that the tokens will have in their sequences."""

    params: SamplingTensors
    positions: Tensor


Columns = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


def sampling_columns(params: Items[SamplingParams], vocab_size: int) -> Columns:
    """Return the columns of ``SamplingTensors`` in order, on the host, one row for each of
    ``params``."""
    with np.errstate(divide="ignore"):
        log_min_p = np.log(np.array([p.min_p for p in params], dtype=np.float32))
    return (
        np.array([0.0 if is_greedy(p) else p.temperature for p in params], dtype=np.float32),
        log_min_p,
        np.array([p.top_k if p.top_k < vocab_size else 0 for p in params], dtype=np.int32),
        np.array([p.top_p for p in params], dtype=np.float64),
        np.array([p.seed for p in params], dtype=np.uint64).view(np.int64),
    )


def sampling_tensors(
    params: Items[SamplingParams], vocab_size: int, device: torch.device
) -> SamplingTensors:
    return SamplingTensors(*sent(sampling_columns(params, vocab_size), device))


def samples_on_device(sequence: Sequence) -> bool:
    """True if the sequence now only uses temperature, top-k, top-p and min-p, so that its tokens
    need not be known to the host."""
    return sequence.num_output_tokens >= sequence.params.min_tokens and _has_no_other_rules(
        sequence
    )


def is_always_plain(sequence: Sequence) -> bool:
    """True if ``samples_on_device`` is true at any time. All ranks know it."""
    return not sequence.params.min_tokens and _has_no_other_rules(sequence)


def _has_no_other_rules(sequence: Sequence) -> bool:
    params = sequence.params
    return (
        sequence.embed is None
        and sequence.grammar_state is None
        and params.logprobs is None
        and params.allowed_tokens is None
        and not params.logit_bias
        and not params.bad_words_token_ids
        and not is_penalised(params)
    )
