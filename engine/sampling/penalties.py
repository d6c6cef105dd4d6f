"""Counts a sequence's tokens: the state needed for its penalties."""

from __future__ import annotations

from collections.abc import Sequence as Items

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.device.sending import sent
from engine.step.sequence import Sequence


class TokenCounts:
    """The distinct tokens of one sequence (in order of appearance) and how often each was
    generated; a token of the prompt only has count 0. Grows with the sequence."""

    def __init__(self, prompt: Items[int]) -> None:
        distinct = np.array(list(dict.fromkeys(prompt)), dtype=np.int64)
        capacity = max(64, 2 * len(distinct))
        self._place = {int(token): place for place, token in enumerate(distinct)}
        self._tokens = np.zeros(capacity, dtype=np.int64)
        self._tokens[: len(distinct)] = distinct
        self._counts = np.zeros(capacity, dtype=np.float32)
        self._counted = 0  # output tokens

    def update(self, sequence: Sequence) -> list[int]:
        """Count the output tokens added since the last call. Return their places."""
        start = sequence.num_prompt_tokens + self._counted
        places = [self._count(token) for token in sequence.token_ids[start:]]
        self._counted = sequence.num_output_tokens
        return places

    @property
    def tokens(self) -> NDArray[np.int64]:
        return self._tokens[: len(self._place)]

    @property
    def counts(self) -> NDArray[np.float32]:
        return self._counts[: len(self._place)]

    def _count(self, token: int) -> int:
        place = self._place.setdefault(token, len(self._place))
        if place == len(self._tokens):
            self._tokens = np.concatenate((self._tokens, np.zeros_like(self._tokens)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._tokens[place] = token
        self._counts[place] += 1
        return place


def apply_penalties(
    logits: Tensor, rows: Items[int], sequences: Items[Sequence], states: Items[TokenCounts]
) -> None:
    """Penalise in place the tokens that ``rows`` of ``logits`` [batch, vocabulary] hold already.

    Repetition (arXiv 1909.05858) divides positive and multiplies negative logits of all tokens of
    prompt and output; frequency and presence are subtracted for tokens of the output, once per
    occurrence and once at all, as the OpenAI API defines them.
    """
    sizes = [len(state.tokens) for state in states]
    params = [sequence.params for sequence in sequences]

    def spread(values: list[float]) -> NDArray[np.float32]:
        return np.repeat(np.array(values, np.float32), sizes)

    first = np.repeat(np.array(rows, np.int64) * logits.shape[1], sizes)
    place, counts, repetition, frequency, presence = sent(
        [
            first + np.concatenate([state.tokens for state in states]),
            np.concatenate([state.counts for state in states]),
            spread([p.repetition_penalty for p in params]),
            spread([p.frequency_penalty for p in params]),
            spread([p.presence_penalty for p in params]),
        ],
        logits.device,
    )
    flat = logits.view(-1)
    values = flat.index_select(0, place)
    values = torch.where(values > 0, values / repetition, values * repetition)
    values -= frequency * counts
    values -= presence * (counts > 0)
    flat.index_copy_(0, place, values)
