"""Several programs a row draw the token that one draws, wherever the parts begin; more in
test_sampling.py."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from engine.gpu.kernels.sampling import sample
from engine.messages import SamplingParams
from engine.sampling.device import sampling_tensors


@pytest.mark.parametrize("vocabulary", [5, 33, 64, 1000])
def test_parts_may_be_empty_short_or_uneven(device: torch.device, vocabulary: int) -> None:
    torch.manual_seed(vocabulary)
    params = [
        SamplingParams(max_tokens=1, temperature=0.0),
        SamplingParams(max_tokens=1, seed=1, temperature=20.0),
        SamplingParams(max_tokens=1, seed=2, temperature=9.0, top_p=0.9),
        SamplingParams(max_tokens=1, seed=3, temperature=9.0, top_k=4),
    ]
    logits = torch.randn(len(params), vocabulary, device=device) * 3
    positions = torch.arange(len(params), dtype=torch.int32, device=device)
    tensors = sampling_tensors(params, vocabulary, device)
    alone, best_alone = sample(logits, tensors, positions, in_parts=False)
    shared, best_shared = sample(logits, tensors, positions, in_parts=True)
    assert shared.tolist() == alone.tolist()
    assert torch.equal(best_alone, best_shared)
