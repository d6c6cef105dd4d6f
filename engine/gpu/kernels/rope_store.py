"""QK norm, rotary embedding and storing in the KV cache, in one pass over queries, keys and values.

Rotary embedding: arXiv 2104.09864, of adjacent pairs (``engine.architecture.rope`` reorders the
checkpoint's weights accordingly); normalised queries and keys: arXiv 2010.04245.
"""

import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.dependent import await_inputs
from engine.gpu.kernels.launch import early_launch, padded, warps_for

# Heads per program.
_HEADS = 8
# The largest finite value of an 8-bit float with 4 exponent bits (arXiv 2209.05433).
_MAX_E4M3 = tl.constexpr(448.0)


@triton.jit
def _norm_rope_store(
    qkv,
    norm_weight,
    rotations,
    positions,
    slots,
    cache,
    scales,
    qkv_stride,
    block_stride,
    eps,
    NUM_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HAS_NORM: tl.constexpr,
    HAS_ROPE: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    KEEPS_KEYS: tl.constexpr,
    EARLY: tl.constexpr,
):
    await_inputs(EARLY)
    row = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    dims = tl.arange(0, DIM)
    is_query = heads < NUM_HEADS
    turns = heads < NUM_HEADS + KV_HEADS
    exists = (heads < NUM_HEADS + 2 * KV_HEADS)[:, None] & (dims < HEAD_DIM)[None, :]
    places = qkv + row * qkv_stride + heads[:, None] * HEAD_DIM + dims[None, :]
    x = tl.load(places, mask=exists, other=0.0).to(tl.float32)
    if HAS_NORM:
        scale = 1.0 / tl.sqrt(tl.sum(x * x, 1) / HEAD_DIM + eps)
        gains = norm_weight + tl.where(is_query, 0, 1)[:, None] * HEAD_DIM + dims[None, :]
        gain = tl.load(gains, mask=exists & turns[:, None], other=0.0).to(tl.float32)
        x = tl.where(turns[:, None], x * scale[:, None] * gain, x)
    if HAS_ROPE:
        position = tl.load(positions + row)
        pairs = tl.arange(0, DIM // 2)
        is_pair = pairs < HEAD_DIM // 2
        turn = rotations + position.to(tl.int64) * HEAD_DIM + 2 * pairs
        cos = tl.load(turn, mask=is_pair, other=0.0)
        sin = tl.load(turn + 1, mask=is_pair, other=0.0)
        even, odd = tl.split(tl.reshape(x, [HEADS, DIM // 2, 2]))
        turned = tl.join(
            even * cos[None, :] - odd * sin[None, :], even * sin[None, :] + odd * cos[None, :]
        )
        x = tl.where(turns[:, None], tl.reshape(turned, [HEADS, DIM]), x)
    is_kept = turns if KEEPS_KEYS else is_query
    tl.store(places, x.to(qkv.dtype.element_ty), mask=exists & is_kept[:, None])
    slot = tl.load(slots + row).to(tl.int64)
    cached = heads - NUM_HEADS  # the keys' heads, then the values'
    if HAS_SCALES:
        inverse = 1.0 / tl.load(scales + cached, mask=(cached >= 0) & (cached < 2 * KV_HEADS))
        x = tl.minimum(tl.maximum(x * inverse[:, None], -_MAX_E4M3), _MAX_E4M3)
    stored = slot // BLOCK_SIZE * block_stride + slot % BLOCK_SIZE * HEAD_DIM
    target = stored + cached[:, None] * (BLOCK_SIZE * HEAD_DIM) + dims[None, :]
    kept = exists & (cached >= 0)[:, None] & (slot >= 0)
    tl.store(cache + target, x.to(cache.dtype.element_ty), mask=kept)


def norm_rope_store(
    qkv: Tensor,
    blocks: Tensor,
    slots: Tensor,
    positions: Tensor,
    *,
    num_heads: int,
    rotations: Tensor | None,
    norm_weight: Tensor | None = None,
    eps: float = 0.0,
    scales: Tensor | None = None,
    keeps_keys: bool = False,
) -> None:
    """Normalise and rotate queries and keys; store keys and values.

    ``qkv`` [rows, heads + 2 * kv_heads, head_dim]: queries, keys, values; queries are overwritten.
    ``blocks`` [blocks, 2, kv_heads, block_size, head_dim]: one layer of the cache; ``slots`` int32
    [rows]: block * block_size + offset; negative: the row is not stored. ``rotations`` float32
    [positions, head_dim / 2, 2]: cosine and sine of every pair. ``norm_weight`` [2, head_dim]: of
    queries and keys. ``scales`` float32 [2, kv_heads]: divisors of stored keys and values, for an
    8-bit cache. ``keeps_keys``: keys are overwritten, too, besides being stored.
    """
    rows, all_heads, head_dim = qkv.shape
    _, _, kv_heads, block_size, _ = blocks.shape
    heads = min(_HEADS, triton.next_power_of_2(all_heads))
    dim = padded(head_dim)
    _norm_rope_store[(rows, triton.cdiv(all_heads, heads))](
        qkv,
        norm_weight,
        rotations,
        positions,
        slots,
        blocks,
        scales,
        qkv.stride(0),
        blocks.stride(0),
        eps,
        NUM_HEADS=num_heads,
        KV_HEADS=kv_heads,
        HEADS=heads,
        HEAD_DIM=head_dim,
        DIM=dim,
        BLOCK_SIZE=block_size,
        HAS_NORM=norm_weight is not None,
        HAS_ROPE=rotations is not None,
        HAS_SCALES=scales is not None,
        KEEPS_KEYS=keeps_keys,
        **early_launch(),
        num_warps=min(4, warps_for(heads * dim)),
    )
