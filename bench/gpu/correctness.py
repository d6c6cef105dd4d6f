"""Compares every kernel with float64 on the device that it will run on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bench.gpu.paged import Batch, Piece, Scores, Shape, attention, make_batch
from bench.gpu.report import Row
from engine.architecture.rope import RopeConfig
from engine.architecture.rotary import RotaryEmbedding
from engine.gpu.kernels.activation import gated
from engine.gpu.kernels.decode_attention import decode_attention
from engine.gpu.kernels.launch import early_launch, uniform_tiles
from engine.gpu.kernels.logprobs import gather_logprobs
from engine.gpu.kernels.product import product
from engine.gpu.kernels.ragged_attention import ragged_attention
from engine.gpu.kernels.ragged_parts import plan_parts
from engine.gpu.kernels.rms_norm import add_rms_norm
from engine.gpu.kernels.rope_store import norm_rope_store
from engine.gpu.kernels.sampling import sample
from engine.gpu.kernels.skinny import Norm, skinny_product
from engine.gpu.kernels.trial import run_chain
from engine.messages import SamplingParams
from engine.sampling.device import sampling_tensors
from engine.sampling.params import build_batch
from engine.sampling.random import uniforms
from engine.sampling.sampler import draw
from engine.step.sequence import Sequence

# The largest allowed ‖found - expected‖ / ‖expected‖ for arithmetic in the type.
LIMITS = {torch.float32: 2e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def error(found: Tensor, expected: Tensor, dtype: torch.dtype) -> Row:
    """Raises AssertionError above the limit and for NaN or infinity."""
    found, expected = found.double().cpu(), expected.double().cpu()
    value = ((found - expected).norm() / expected.norm()).item()
    if not value <= LIMITS[dtype]:
        raise AssertionError(f"relative error {value}, at most {LIMITS[dtype]} is allowed")
    return {"relative_error": value}


Check = tuple[str, Callable[[], Row]]


def checks(device: torch.device, *, large: bool) -> list[Check]:
    """Return the checks, the most telling first. ``large``: shapes as in production, for which the
    interpreter is too slow."""
    shapes = [(Shape(8, 2, 64, 16), torch.float32)]
    if large:
        shapes = [
            (Shape(32, 8, 128, 16), torch.bfloat16),
            (Shape(16, 8, 128, 16), torch.bfloat16),
            (Shape(32, 8, 64, 32), torch.bfloat16),
            (Shape(28, 4, 128, 64), torch.float16),
            (Shape(12, 4, 80, 16), torch.bfloat16),
            (Shape(12, 4, 96, 8), torch.bfloat16),
            (Shape(8, 1, 256, 16), torch.bfloat16),
            (Shape(8, 2, 128, 16), torch.float32),
        ]
    scale = 12 if large else 1
    pieces = [Piece(70 * scale, 9 * scale), Piece(31 * scale), Piece(5, 5), Piece(33 * scale, 2)]
    attending: list[Check] = []
    for shape, dtype in shapes:
        for scores in (Scores(scale=0.1), Scores(window=37, soft_cap=5.0, scale=0.1)):
            name = f"{shape} {str(dtype).removeprefix('torch.')} window={scores.window}"
            for kind, attend in (("decode", decode), ("ragged", ragged)):
                check = partial(attend, shape, dtype, scores, pieces, device)
                attending.append((f"check {kind} {name}", check))
    dtype = torch.bfloat16 if large else torch.float32
    size = 4096 if large else 64
    vocabulary = 151_936 if large else 3000
    fused: list[Check] = [
        ("check sampling", partial(sampled, 64 if large else 7, vocabulary, device)),
        ("check norm_rope_store", partial(rope, dtype, device)),
        ("check product of few rows", partial(skinny, size, dtype, device)),
        ("check add_rms_norm", partial(norm, size, dtype, device)),
        ("check gated", partial(gate, size, dtype, device)),
        ("check deterministic product", partial(deterministic, size, dtype, device)),
        ("check deterministic attention", partial(uniform, *shapes[0], device)),
        ("check logprobs", partial(logprobs, vocabulary, device)),
        ("check order of early launches", partial(in_order, device)),
    ]
    return [*attending[:2], *fused, *attending[2:]]


def in_order(device: torch.device) -> Row:
    """Of kernels that start before the last one has ended, launched one by one and from a graph."""
    run_chain(device)
    return {"early": early_launch()["EARLY"]}


def ragged(
    shape: Shape, dtype: torch.dtype, scores: Scores, pieces: list[Piece], device: torch.device
) -> Row:
    """As the table says, and with the keys of each tile divided as far as they can be."""
    batch = make_batch(pieces, shape, dtype=dtype, device=device)
    in_parts = plan_parts(
        *(batch.lengths, batch.cu_seqlens, batch.longest),
        rows=batch.query.shape[0],
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        dtype=dtype,
        window=scores.window,
        programs=1000,
        fewest_keys=1,
        least_gain=1,
    )
    expected = attention(batch, pieces, scores)
    rows: Row = {}
    for parts in (None, in_parts, in_parts):
        found = ragged_attention(
            *(batch.query, batch.blocks, batch.tables, batch.lengths, batch.cu_seqlens),
            batch.longest,
            scale=scores.scale,
            window=scores.window,
            soft_cap=scores.soft_cap,
            parts=parts,
        )
        rows = error(found, expected, dtype)
    return {**rows, "most_parts": int(in_parts.table[:, 3].max())}


def decode(
    shape: Shape, dtype: torch.dtype, scores: Scores, pieces: list[Piece], device: torch.device
) -> Row:
    single = [Piece(piece.length) for piece in pieces]
    batch: Batch = make_batch(single, shape, dtype=dtype, device=device)
    expected = attention(batch, single, scores)
    rows: Row = {}
    for programs in (1, 7, 300):
        found = decode_attention(
            *(batch.query, batch.blocks, batch.tables, batch.lengths),
            scale=scores.scale,
            window=scores.window,
            soft_cap=scores.soft_cap,
            programs=programs,
        )
        rows = error(found, expected, dtype)
    return rows


def norm(size: int, dtype: torch.dtype, device: torch.device) -> Row:
    x, residual = torch.randn(2, 33, size, device=device).to(dtype)
    weight = torch.randn(size, device=device).to(dtype)
    total = x.double() + residual.double()
    out = add_rms_norm(x, residual, weight, 1e-6)
    error(residual, total, dtype)
    kept = residual.double()
    expected = kept / (kept.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
    return error(out, expected, dtype)


def gate(size: int, dtype: torch.dtype, device: torch.device) -> Row:
    gate_up = torch.randn(33, 2 * size, device=device).to(dtype)
    first, second = gate_up.double().chunk(2, dim=1)
    return error(gated(gate_up, "silu"), functional.silu(first) * second, dtype)


def skinny(size: int, dtype: torch.dtype, device: torch.device) -> Row:
    """Norm, product, gate; product, residual."""
    x, residual = (torch.randn(3, size, device=device, dtype=dtype) for _ in range(2))
    weight = torch.randn(2 * size, size, device=device, dtype=dtype) / size**0.5
    gain = torch.randn(size, device=device, dtype=dtype)
    normed = functional.rms_norm(x.double(), (size,), gain.double(), 1e-5)
    gates, ups = (normed @ weight.double().T).chunk(2, dim=-1)
    gated_rows = skinny_product(x, weight, norm=Norm(gain, 1e-5), activation="silu")
    error(gated_rows, functional.silu(gates) * ups, dtype)
    expected = residual.double() + x.double() @ weight[:size].double().T
    return error(skinny_product(x, weight[:size], residual=residual), expected, dtype)


def deterministic(size: int, dtype: torch.dtype, device: torch.device) -> Row:
    """Rows in any batch, to the bit; and close to float64."""
    weight = torch.randn(size, size, device=device, dtype=dtype) / size**0.5
    x = torch.randn(300, size, device=device, dtype=dtype)
    whole = product(x, weight)
    for first, last in ((0, 1), (17, 18), (64, 128), (3, 299)):
        if not torch.equal(product(x[first:last], weight), whole[first:last]):
            raise AssertionError(f"rows {first} to {last} alone differ from those of {len(x)}")
    return error(whole, x.double() @ weight.double().T, dtype)


def uniform(shape: Shape, dtype: torch.dtype, device: torch.device) -> Row:
    """The last token of a prompt, alone and with the others, to the bit."""
    pieces = [Piece(200, 200), Piece(77, 30)]
    batch = make_batch(pieces, shape, dtype=dtype, device=device)
    tiles = uniform_tiles(shape.head_dim, dtype, device)
    attend = partial(ragged_attention, scale=0.1, tiles=tiles, uniform=True)
    found = attend(
        *(batch.query, batch.blocks, batch.tables, batch.lengths, batch.cu_seqlens, batch.longest)
    )
    lasts = (batch.cu_seqlens[1:] - 1).long()
    each = torch.arange(len(pieces) + 1, dtype=torch.int32, device=device)
    alone = attend(batch.query[lasts], batch.blocks, batch.tables, batch.lengths, each, 1)
    if not torch.equal(alone, found[lasts]):
        raise AssertionError("a token alone differs from the same one in its prompt")
    return error(found, attention(batch, pieces, Scores(scale=0.1)), dtype)


def rope(dtype: torch.dtype, device: torch.device) -> Row:
    heads, kv_heads, head_dim, block_size, rows = 16, 4, 128, 16, 9
    rotary = RotaryEmbedding(RopeConfig(), head_dim, 4000, torch.device("cpu"))
    positions = torch.randint(0, 4000, (rows,))
    slots = torch.randperm(rows * block_size)[:rows]
    qkv = torch.randn(rows, heads + 2 * kv_heads, head_dim).to(dtype)
    weight = torch.randn(2, head_dim).to(dtype)
    expected = qkv.double()
    gains = torch.cat((weight[:1].expand(heads, -1), weight[1:].expand(kv_heads, -1))).double()
    qk = expected[:, : heads + kv_heads]
    qk = qk / (qk.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gains
    turns = rotary.rotations(positions).to(torch.complex128)
    turned = torch.view_as_complex(qk.reshape(rows, -1, head_dim // 2, 2)) * turns
    expected[:, : heads + kv_heads] = torch.view_as_real(turned).flatten(-2)
    blocks = torch.full((rows, 2, kv_heads, block_size, head_dim), 9.0, dtype=dtype, device=device)
    found = qkv.to(device)
    norm_rope_store(
        *(found, blocks, slots.to(device, torch.int32), positions.to(device, torch.int32)),
        num_heads=heads,
        rotations=rotary.cosines_and_sines().to(device),
        norm_weight=weight.to(device),
        eps=1e-6,
    )
    stored = torch.full(blocks.shape, 9.0, dtype=torch.float64)
    for row, slot in enumerate(slots.tolist()):
        halves = expected[row, heads:].view(2, kv_heads, head_dim)
        stored[slot // block_size, :, :, slot % block_size] = halves
    error(blocks, stored, dtype)
    return error(found[:, :heads], expected[:, :heads], dtype)


def logprobs(vocabulary: int, device: torch.device) -> Row:
    logits = torch.randn(7, vocabulary, device=device) * 4
    tokens = torch.randint(0, vocabulary, (7,), device=device)
    values, ranks = gather_logprobs(logits, tokens)
    own = logits.gather(1, tokens[:, None])
    if not torch.equal(ranks.long(), (logits > own).sum(1) + 1):
        raise AssertionError("ranks differ")
    expected = torch.log_softmax(logits.double(), -1).gather(1, tokens[:, None])[:, 0]
    return error(values, expected, torch.float32)


def sampled(rows: int, vocabulary: int, device: torch.device) -> Row:
    """Return the share of rows whose token is the reference sampler's. Because sums are computed in
    another order, a quantile may fall on the other side of a token's edge, though rarely. One
    program a row must draw what several do."""
    kinds: tuple[dict[str, Any], ...] = (
        {"temperature": 0.0},
        {"temperature": 0.7},
        {"top_k": 50},
        {"top_p": 0.9},
        {"top_k": 20, "top_p": 0.95},
        {"min_p": 0.05},
        {"temperature": 1.5, "top_k": 1000, "top_p": 0.95, "min_p": 0.001},
    )
    params = [
        SamplingParams(max_tokens=1, seed=row, **kinds[row % len(kinds)]) for row in range(rows)
    ]
    logits = torch.randn(rows, vocabulary, device=device) * 3
    positions = torch.arange(rows, dtype=torch.int32, device=device)
    tensors = sampling_tensors(params, vocabulary, device)
    tokens, _ = sample(logits, tensors, positions)
    # Nearly flat rows keep most tokens. Tests compare small ones.
    for spread in (1, 0.03) if rows > len(kinds) else ():
        alone, _ = sample(logits * spread, tensors, positions, in_parts=False)
        shared, _ = sample(logits * spread, tensors, positions, in_parts=True)
        assert alone.tolist() == shared.tolist()
    sequences = [Sequence(row, "", [0], 1, params[row]) for row in range(rows)]
    batch = build_batch(sequences, [None] * rows, vocab_size=vocabulary, device=torch.device("cpu"))
    expected = logits.cpu().argmax(1)
    assert batch.random is not None
    drawn = list(batch.random.indices)
    numbers = uniforms(batch.random.seeds, np.array(drawn, np.uint64))
    expected[drawn] = draw(logits.cpu()[drawn], batch.random, torch.from_numpy(numbers))
    same = (tokens.cpu() == expected).double().mean().item()
    if same < 0.95:
        raise AssertionError(f"only {same:.0%} of the tokens are the reference's")
    return {"same_tokens": same}
