"""Gathered log-probabilities and ranks are those of the reference."""

from __future__ import annotations

import math

import pytest
import torch

pytest.importorskip("triton")

from engine.gpu.kernels.logprobs import gather_logprobs
from engine.sampling.logprobs import token_logprobs


@pytest.mark.parametrize("vocabulary", [40, 5001])
def test_gathered_logprobs_and_ranks(device: torch.device, vocabulary: int) -> None:
    torch.manual_seed(0)
    logits = torch.randn(5, vocabulary, device=device) * 3
    logits[1] = logits[1].round()  # ties
    logits[2, ::2] = -math.inf
    tokens = torch.tensor([0, 7, 9, vocabulary - 1, 1], device=device)
    logprobs, ranks = gather_logprobs(logits, tokens)
    wanted = token_logprobs(logits.cpu(), tokens.tolist(), [0] * 5)
    assert logprobs.tolist() == pytest.approx([found.logprob for found in wanted], abs=1e-5)
    assert ranks.tolist() == [found.rank for found in wanted]


def test_the_logprob_of_a_hidden_token_is_minus_infinity(device: torch.device) -> None:
    logits = torch.zeros(1, 10, device=device)
    logits[0, 4] = -math.inf
    logprobs, ranks = gather_logprobs(logits, torch.tensor([4], device=device))
    assert logprobs.tolist() == [-math.inf]
    assert ranks.tolist() == [10]
