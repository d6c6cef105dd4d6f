"""QK norm, rotation and the way into the cache in one kernel equal float64, part by part."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from engine.architecture.rope import RopeConfig
from engine.architecture.rotary import RotaryEmbedding
from engine.gpu.kernels.rope_store import norm_rope_store
from tests.engine.gpu.kernels.closeness import close, normalised


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "block_size"),
    [(4, 2, 16, 8), (3, 1, 80, 16), (14, 2, 64, 32), (2, 2, 96, 64), (5, 1, 128, 16)],
)
@pytest.mark.parametrize("has_norm", [False, True])
def test_norm_rope_store(
    device: torch.device,
    heads: int,
    kv_heads: int,
    head_dim: int,
    block_size: int,
    has_norm: bool,
) -> None:
    torch.manual_seed(heads)
    rotary = RotaryEmbedding(RopeConfig(theta=50.0), head_dim, 300, torch.device("cpu"))
    positions = torch.tensor([7, 299, 0, 12])
    slots = torch.tensor([3 * block_size + 5, 0, -1, 5 * block_size - 1], dtype=torch.int32)
    qkv = torch.randn(4, heads + 2 * kv_heads, head_dim)
    weight = torch.randn(2, head_dim)

    expected = qkv.double()
    qk = expected[:, : heads + kv_heads]
    if has_norm:
        qk[:, :heads] = normalised(qk[:, :heads], weight[0])
        qk[:, heads:] = normalised(qk[:, heads:], weight[1])
    turns = rotary.rotations(positions).to(torch.complex128)
    turned = torch.view_as_complex(qk.reshape(4, -1, head_dim // 2, 2)) * turns
    expected[:, : heads + kv_heads] = torch.view_as_real(turned).flatten(-2)

    found = qkv.to(device)
    blocks = torch.full((6, 2, kv_heads, block_size, head_dim), 9.0, device=device)
    norm_rope_store(
        found,
        blocks,
        slots.to(device),
        positions.to(device, torch.int32),
        num_heads=heads,
        rotations=rotary.cosines_and_sines().to(device),
        norm_weight=weight.to(device) if has_norm else None,
        eps=1e-5,
        keeps_keys=has_norm,
    )
    written = heads + (kv_heads if has_norm else 0)
    close(found[:, :written], expected[:, :written])
    assert torch.equal(found[:, written:].cpu(), qkv[:, written:])
    stored = torch.full(blocks.shape, 9.0, dtype=torch.float64)
    for row, slot in enumerate(slots.tolist()):
        if slot >= 0:
            halves = expected[row, heads:].view(2, kv_heads, head_dim)
            stored[slot // block_size, :, :, slot % block_size] = halves
    close(blocks, stored)


def test_without_a_rotation_only_queries_and_keys_norms_count(device: torch.device) -> None:
    qkv = torch.randn(2, 4, 16, device=device)
    before = qkv.clone()
    blocks = torch.zeros(2, 2, 1, 8, 16, device=device)
    slots = torch.tensor([4, 9], dtype=torch.int32, device=device)
    norm_rope_store(qkv, blocks, slots, slots, num_heads=2, rotations=None)
    assert torch.equal(qkv, before)
    assert torch.equal(blocks[0, :, 0, 4], before[0, 2:])
    assert torch.equal(blocks[1, :, 0, 1], before[1, 2:])
