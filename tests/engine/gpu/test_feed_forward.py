"""A feed-forward's rows are the same computed as a few and as many."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

pytest.importorskip("triton")

from engine.architecture.features import Experts
from engine.gpu.feed_forward import AnyFeedForward, Dense, Mixture
from engine.gpu.kernels.skinny import Norm
from engine.gpu.projection import Projection

HIDDEN, INNER, COUNT = 48, 40, 5


def random(*shape: int, device: torch.device) -> Tensor:
    return torch.randn(*shape, device=device) * shape[-1] ** -0.5


def subjects(device: torch.device) -> dict[str, AnyFeedForward]:
    gate_up, down = random(2 * INNER, HIDDEN, device=device), random(HIDDEN, INNER, device=device)
    return {
        "dense": Dense(Projection(gate_up, None), Projection(down, None), "silu"),
        "mixture": Mixture(
            Experts(COUNT, 2, INNER, True, (True,)),
            random(COUNT, HIDDEN, device=device) * 5,
            random(COUNT, 2 * INNER, HIDDEN, device=device),
            random(COUNT, HIDDEN, INNER, device=device),
            "silu",
        ),
    }


@pytest.mark.parametrize("kind", ["dense", "mixture"])
def test_a_few_rows_as_many(device: torch.device, kind: str) -> None:
    torch.manual_seed(3)
    feed = subjects(device)[kind]
    many = torch.randn(6, HIDDEN, device=device)
    gain = torch.randn(HIDDEN, device=device)
    normed = functional.rms_norm(many, (HIDDEN,), gain, 1e-5)
    x, expected = many[:4], feed(normed)[:4]
    torch.testing.assert_close(feed(normed[:4]), expected, rtol=0, atol=1e-4)
    norm = Norm(gain, 1e-5)
    torch.testing.assert_close(feed.of_few(x, norm, None), expected, rtol=0, atol=1e-4)
    residual = x.clone()
    added = feed.of_few(residual, norm, residual)
    assert added is residual
    torch.testing.assert_close(added, x + expected, rtol=0, atol=1e-4)
