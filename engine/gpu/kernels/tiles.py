"""Attention of one tile of query rows to a range of a sequence's keys, read in place.

Online softmax: Milakov and Gimelshein, arXiv 1805.02867; tiled attention: FlashAttention, arXiv
2205.14135. Scores are multiplied by log2(e), so that exponentials are powers of two.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def attend_tiles(
    query,
    total,
    peak,
    mass,
    cache,
    table,
    head_offset,
    block_stride,
    positions,
    first_tile,
    end_tile,
    end,
    scale,
    soft_cap,
    HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
    VALUES_OFFSET: tl.constexpr,
    WINDOW: tl.constexpr,
    HAS_CAP: tl.constexpr,
    MASKED: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """Add the keys of tiles [first_tile, end_tile), ``KEYS`` keys each, to a running softmax.

    ``query`` [rows, DIM]; ``total`` float32 [rows, DIM], ``peak`` and ``mass`` float32 [rows]: the
    weighted sum of values so far, the highest score, the sum of weights. A row at ``positions``
    sees keys up to its position, before ``end``, and within ``WINDOW`` (0: no limit). With
    ``MASKED`` False every row sees all of them. ``table``: the sequence's block numbers.
    ``cache`` [blocks, 2, kv_heads, BLOCK_SIZE, HEAD_DIM]; ``head_offset``: where the head's keys
    begin in a block.
    """
    dims = tl.arange(0, DIM)
    is_dim = dims < HEAD_DIM
    # A tile's block numbers are loaded one iteration early. Were they loaded with it, the pipeline
    # would spend its stages on them, and keys and values would be waited for at once.
    ahead = first_tile * KEYS + tl.arange(0, KEYS)
    following = tl.load(table + ahead // BLOCK_SIZE, mask=ahead < end, other=0)
    for tile in range(first_tile, end_tile):
        keys = tile * KEYS + tl.arange(0, KEYS)
        blocks = following
        ahead = keys + KEYS
        following = tl.load(table + ahead // BLOCK_SIZE, mask=ahead < end, other=0)
        if MASKED:
            exists = keys < end
            loads = exists[:, None] & is_dim[None, :]
        else:
            loads = (keys >= 0)[:, None] & is_dim[None, :]
        places = blocks.to(tl.int64) * block_stride + head_offset
        places = places + (keys % BLOCK_SIZE) * HEAD_DIM
        offsets = places[:, None] + dims[None, :]
        key = tl.load(cache + offsets, mask=loads, other=0.0).to(DTYPE)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee")
        if HAS_CAP:
            # cap * tanh(score / cap), with tanh(x) = 1 - 2 / (1 + e^2x).
            scores = scores * scale
            scores = soft_cap * (1.0 - 2.0 / (1.0 + tl.exp(2.0 * scores / soft_cap))) * LOG2E
        else:
            scores = scores * (scale * LOG2E)
        if MASKED:
            seen = (keys[None, :] <= positions[:, None]) & exists[None, :]
            if WINDOW > 0:
                seen = seen & (keys[None, :] > positions[:, None] - WINDOW)
            scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        # For a row that has seen no key yet: any finite number keeps its weights at 0.
        level = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(scores - level[:, None])
        fades = tl.exp2(peak - level)
        mass = mass * fades + tl.sum(weights, 1)
        value = tl.load(cache + offsets + VALUES_OFFSET, mask=loads, other=0.0).to(DTYPE)
        total = total * fades[:, None]
        total = total + tl.dot(weights.to(DTYPE), value, input_precision="ieee")
        peak = higher
    return total, peak, mass
