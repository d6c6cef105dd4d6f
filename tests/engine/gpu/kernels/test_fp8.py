"""Kernels read and write an 8-bit KV cache as the torch path does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from bench.gpu.paged import Piece, Scores, Shape, attention, make_batch
from engine.attention.cache import PagedKVCache
from engine.attention.layout import CacheShape
from engine.attention.plans import PlanBuilder
from engine.attention.quantised import E4M3
from engine.gpu.kernels.decode_attention import decode_attention
from engine.gpu.kernels.launch import DecodeTiles, RaggedTiles
from engine.gpu.kernels.ragged_attention import ragged_attention
from engine.gpu.kernels.rope_store import norm_rope_store
from engine.messages import SamplingParams
from tests.engine.attention.scaled_cache import scaled_cache
from tests.engine.driving import Engine
from tests.engine.tiny_models import VARIANTS, save_model


def test_stored_by_the_kernel_or_by_torch_is_the_same(device: torch.device) -> None:
    torch.manual_seed(0)
    qkv = torch.randn(5, 3 + 4, 16, device=device) * 4
    by_kernel, by_torch = scaled_cache(device), scaled_cache(device)
    slots = torch.tensor([3, 23, 8, 0, 9], dtype=torch.int32, device=device)
    norm_rope_store(
        *(qkv.clone(), by_kernel.layer(0), slots, slots),
        num_heads=3,
        rotations=None,
        scales=by_kernel.scales(0),
    )
    builder = PlanBuilder(CacheShape(8, 2), [None], torch.float32, device)
    places = slots.cpu().numpy().astype("int64")
    by_torch.store(0, builder.slots(places // 8, places % 8), qkv[:, 3:5], qkv[:, 5:])
    found, expected = by_kernel.layer(0).float(), by_torch.layer(0).float()
    assert expected.abs().max() == 448  # the first head's scale leaves no room: it is cut off
    # A number halfway between two may go either way, as dividing and multiplying by an inverse do.
    assert (found != expected).float().mean() < 0.01
    torch.testing.assert_close(found, expected, rtol=0.13, atol=0.01)


@pytest.mark.parametrize("programs", [1, 4])
def test_attention_over_scaled_8_bit_contexts_equals_float64(
    device: torch.device, programs: int
) -> None:
    pieces = [Piece(40, 7), Piece(33), Piece(12, 12)]
    batch = make_batch(pieces, Shape(4, 2, 32, 8), device=device)
    scales = torch.tensor([[0.5, 2.0], [0.25, 3.0]])
    narrow = (batch.blocks.cpu() / scales[:, :, None, None]).to(E4M3)
    for context, scale in ((batch.keys, scales[0]), (batch.values, scales[1])):
        for number, part in enumerate(context):
            divided = (part.float() / scale[:, None]).to(E4M3)
            context[number] = divided.double() * scale[:, None].double()
    expected = attention(batch, pieces, Scores())
    common = {"scale": 0.3, "scales": scales.to(device)}
    found = ragged_attention(
        *(batch.query, narrow.to(device), batch.tables, batch.lengths, batch.cu_seqlens, 12),
        tiles=RaggedTiles(16, 16, 4, 2),
        **common,
    )
    torch.testing.assert_close(found.double().cpu(), expected, atol=1e-5, rtol=1e-5)
    last = batch.cu_seqlens[1:].long() - 1
    found = decode_attention(
        *(batch.query[last], narrow.to(device), batch.tables, batch.lengths),
        tiles=DecodeTiles(16, 4, 2),
        programs=programs,
        **common,
    )
    torch.testing.assert_close(found.double().cpu(), expected[last.cpu()], atol=1e-5, rtol=1e-5)


def test_the_engine_gives_the_same_tokens_by_kernels_and_by_torch(
    device: torch.device, tmp_path: Path
) -> None:
    save_model(VARIANTS["llama"], tmp_path)
    prompts = [list(range(30, 51)), [5, 9, 70]]
    params = SamplingParams(max_tokens=4, temperature=0.0)
    outputs = []
    for settings in (
        {"device": device.type, "gpu_path": "triton"},
        {"device": "cpu", "gpu_path": "torch"},
    ):
        engine = Engine(
            tmp_path,
            kv_cache_dtype="fp8",
            block_size=8,
            num_kv_blocks=20,
            max_num_batched_tokens=16,
            max_model_len=60,
            **settings,
        )
        cache: PagedKVCache = engine.core.runner._cache  # type: ignore[attr-defined]
        assert cache.num_bytes == 20 * 3 * 2 * 8 * 32
        outputs.append([output.token_ids for output in engine.generate(prompts, params)])
    assert outputs[0] == outputs[1]
