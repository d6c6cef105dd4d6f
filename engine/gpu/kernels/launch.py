"""How kernels are launched: the fixed table of tile sizes, and properties of the device.

Nothing is tuned while serving: each shape's entry is looked up here. ``python -m bench.gpu --tune``
tries others on the device it runs on and prints the best ones.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor
from triton.runtime import driver

from engine.gpu.kernels.interpreter import repair
from engine.gpu.kernels.types import triton_type

# triton.jit reads TRITON_INTERPRET when a kernel is defined, so it cannot change afterwards.
INTERPRETED = bool(triton.knobs.runtime.interpret)
if INTERPRETED:
    repair()
# The first architecture with programmatic dependent launch.
_FIRST_WITH_EARLY_LAUNCH = 90
# Multiprocessors assumed for a CPU that runs the interpreter; grids are sized by this number.
_INTERPRETED_SMS = 1


@dataclass(frozen=True, slots=True)
class DecodeTiles:
    """``keys``: keys per tile. ``programs_per_sm``: among so many programs per multiprocessor the
    work is divided in equal shares: as many as run at a time, for more would wait. ``registers``:
    the most that a thread may take; with 128, four programs of four warps run on a multiprocessor
    at a time. None: no limit."""

    keys: int
    warps: int
    stages: int
    programs_per_sm: int = 4
    registers: int | None = 128


@dataclass(frozen=True, slots=True)
class RaggedTiles:
    """``rows``: query rows (tokens times the query heads of a key head) per tile.
    ``programs_per_sm``: as many as run on a multiprocessor at a time. ``registers``: the most that
    a thread may take; with 128, two programs of eight warps do. None: no limit."""

    rows: int
    keys: int
    warps: int
    stages: int
    programs_per_sm: int = 2
    registers: int | None = None

    def shared_bytes(self, head_dim: int, itemsize: int) -> int:
        """Shared memory of a program: its queries, and keys and values of all stages."""
        return itemsize * padded(head_dim) * (self.rows + 2 * self.keys * self.stages)


@dataclass(frozen=True, slots=True)
class ProductTiles:
    """``rows`` x ``columns``: of the result, per program; ``depth``: inputs per tile."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class SkinnyTiles:
    """``columns`` of the result per program, for all rows; ``depth``: inputs per tile."""

    columns: int
    depth: int
    warps: int


@dataclass(frozen=True, slots=True)
class VectorTiles:
    """``lanes``: threads that share a column, each with four words at a time; ``turns``: columns of
    each thread; at least two with a gate."""

    turns: int
    lanes: int
    warps: int


@dataclass(frozen=True, slots=True)
class DotTiles:
    """``rows`` x ``columns``: of the result, per program; so many ``shares`` of the inputs have
    separate programs."""

    rows: int
    columns: int
    warps: int
    stages: int
    shares: int


# By (padded head dimension, bytes of a multiplied element). Chosen for sm_90; all but UNIFORM's fit
# the 99 KiB of shared memory that a program gets on today's smaller devices.
DECODE: dict[tuple[int, int], DecodeTiles] = {
    (16, 2): DecodeTiles(128, 4, 3),
    (32, 2): DecodeTiles(128, 4, 3),
    (64, 2): DecodeTiles(64, 4, 3),
    (128, 2): DecodeTiles(32, 4, 3),
    (256, 2): DecodeTiles(16, 4, 3),
    (16, 4): DecodeTiles(64, 4, 2, registers=None),
    (32, 4): DecodeTiles(64, 4, 2, registers=None),
    (64, 4): DecodeTiles(64, 4, 2, registers=None),
    (128, 4): DecodeTiles(32, 4, 2, registers=None),
    (256, 4): DecodeTiles(16, 4, 2, registers=None),
}
RAGGED: dict[tuple[int, int], RaggedTiles] = {
    (16, 2): RaggedTiles(128, 64, 4, 3),
    (32, 2): RaggedTiles(128, 64, 4, 3),
    (64, 2): RaggedTiles(128, 64, 4, 3),
    (128, 2): RaggedTiles(128, 32, 8, 3, registers=128),
    (256, 2): RaggedTiles(64, 32, 8, 2, programs_per_sm=1),
    (16, 4): RaggedTiles(64, 32, 4, 2),
    (32, 4): RaggedTiles(64, 32, 4, 2),
    (64, 4): RaggedTiles(32, 32, 4, 2),
    (128, 4): RaggedTiles(16, 32, 4, 2),
    (256, 4): RaggedTiles(16, 16, 8, 2, programs_per_sm=1),
}
# By bytes of a multiplied element. One entry for all numbers of rows, so that rows do not depend on
# it; narrow, so that a decode step's products keep all multiprocessors busy.
PRODUCT: dict[int, ProductTiles] = {
    2: ProductTiles(64, 64, 64, 4, 4),
    4: ProductTiles(32, 32, 32, 4, 3),
}
# The most rows that products without tensor cores can compute, and the most for which they are
# used: on an H100 they take 0.9 of cuBLAS's time for one row of an 8B model, and 1.4 for four.
FEW_ROWS = 4
VECTOR_ROWS = 1
# By (rows, whether a gate's product is computed as well). Each thread holds the total of 32 or 64
# elements of a tile. 256 inputs a warp are 16 bytes a thread: then inputs and weights lie in the
# same threads, and nothing passes through shared memory.
SKINNY: dict[tuple[int, bool], SkinnyTiles] = {
    (1, False): SkinnyTiles(columns=4, depth=1024, warps=4),
    (1, True): SkinnyTiles(columns=2, depth=1024, warps=4),
    (2, False): SkinnyTiles(columns=4, depth=1024, warps=4),
    (2, True): SkinnyTiles(columns=2, depth=1024, warps=4),
    (4, False): SkinnyTiles(columns=2, depth=1024, warps=4),
    (4, True): SkinnyTiles(columns=1, depth=1024, warps=4),
}
# By (rows of an expert per tile, bytes of a multiplied element). A gate and its up projection are
# two tiles of columns.
EXPERTS: dict[tuple[int, int], ProductTiles] = {
    (16, 2): ProductTiles(16, 64, 128, 4, 3),
    (64, 2): ProductTiles(64, 64, 64, 4, 4),
    (16, 4): ProductTiles(16, 32, 64, 4, 2),
    (64, 4): ProductTiles(64, 32, 32, 4, 2),
}
# A program takes the interpreter as long whatever its tile is, so few programs are best.
_INTERPRETED_SKINNY = SkinnyTiles(columns=128, depth=128, warps=4)
# Of weights of few bits, of several rows, by bits. Of one row see ``vector_tiles``.
FEW_BIT_VECTORS: dict[int, VectorTiles] = {
    4: VectorTiles(2, 32, 4),
    8: VectorTiles(2, 32, 4),
}
# Of one row, by (bits, inputs, outputs), with -8 bits for E4M3: the fastest on an H100, of 4 bits
# in groups of 32 (bench/results/gpu_h100_few_bits.json). A key with a group at its end takes
# precedence, for that group only.
FEW_BIT_ROW: dict[tuple[int, ...], VectorTiles] = {
    (4, 4096, 6144): VectorTiles(4, 128, 4),
    (4, 4096, 4096): VectorTiles(4, 64, 4),
    (4, 4096, 28672): VectorTiles(4, 32, 4),
    (4, 14336, 4096): VectorTiles(4, 64, 4),
    (-8, 4096, 6144): VectorTiles(4, 128, 4),
    (-8, 4096, 4096): VectorTiles(4, 128, 4),
    (-8, 4096, 28672): VectorTiles(4, 128, 4),
    (-8, 14336, 4096): VectorTiles(4, 128, 4),
}
# The fewest programs of one row: among the entries above none has fewer.
_VECTOR_PROGRAMS = 512
# Of more rows, by how many a program computes. The depth is fixed: four slices of a block.
FEW_BIT_PRODUCT: dict[int, ProductTiles] = {
    16: ProductTiles(16, 64, 128, 4, 3),
    32: ProductTiles(32, 64, 128, 4, 3),
    64: ProductTiles(64, 64, 128, 4, 2),
    128: ProductTiles(128, 128, 128, 8, 2),
}
# Of up to so many rows, without zero points.
MOST_DOT_ROWS = 32
# By (rows, bits, inputs, outputs), with -8 bits for E4M3: the fastest on an H100 of 4 rows and of
# 16. Keys with a group at their end as in FEW_BIT_ROW.
FEW_BIT_DOTS: dict[tuple[int, ...], DotTiles] = {
    (8, 4, 4096, 6144): DotTiles(8, 64, 4, 3, shares=4),
    (8, 4, 4096, 4096): DotTiles(8, 64, 4, 3, shares=8),
    (8, 4, 4096, 28672): DotTiles(8, 64, 4, 3, shares=2),
    (8, 4, 14336, 4096): DotTiles(8, 64, 4, 3, shares=8),
    (16, 4, 4096, 6144): DotTiles(16, 32, 2, 3, shares=4),
    (16, 4, 4096, 4096): DotTiles(16, 64, 4, 3, shares=8),
    (16, 4, 4096, 28672): DotTiles(16, 64, 4, 3, shares=1),
    (16, 4, 14336, 4096): DotTiles(16, 64, 4, 3, shares=8),
    (8, 4, 4096, 6144, 128): DotTiles(8, 64, 4, 3, shares=8),
    (8, 4, 4096, 4096, 128): DotTiles(8, 32, 2, 4, shares=8),
    (8, 4, 4096, 28672, 128): DotTiles(8, 64, 4, 3, shares=4),
    (8, 4, 14336, 4096, 128): DotTiles(8, 64, 4, 3, shares=14),
    (16, 4, 4096, 6144, 128): DotTiles(16, 128, 8, 3, shares=4),
    (16, 4, 4096, 4096, 128): DotTiles(16, 128, 8, 3, shares=8),
    (16, 4, 4096, 28672, 128): DotTiles(16, 64, 4, 4, shares=1),
    (16, 4, 14336, 4096, 128): DotTiles(16, 128, 8, 3, shares=8),
    (8, -8, 4096, 6144): DotTiles(8, 32, 2, 4, shares=8),
    (8, -8, 4096, 4096): DotTiles(8, 64, 4, 3, shares=8),
    (8, -8, 4096, 28672): DotTiles(8, 32, 2, 4, shares=4),
    (8, -8, 14336, 4096): DotTiles(8, 32, 2, 4, shares=14),
    (16, -8, 4096, 6144): DotTiles(16, 32, 2, 3, shares=8),
    (16, -8, 4096, 4096): DotTiles(16, 32, 2, 4, shares=8),
    (16, -8, 4096, 28672): DotTiles(16, 32, 2, 4, shares=4),
    (16, -8, 14336, 4096): DotTiles(16, 64, 4, 4, shares=14),
}
# Programs per multiprocessor, by whether weights are E4M3. For sizes not in the table, inputs are
# divided until there are so many; for those in it, this gives nearly the same shares.
_DOT_PROGRAMS_PER_SM = {False: 2, True: 16}
_FEWEST_SHARED_INPUTS = 512
# Like PRODUCT, one entry for single tokens and prompts: (padded head dimension, bytes). For those
# that do not fit 99 KiB see ``uniform_tiles``.
UNIFORM: dict[tuple[int, int], RaggedTiles] = {
    (16, 2): RaggedTiles(64, 64, 4, 3),
    (32, 2): RaggedTiles(64, 64, 4, 3),
    (64, 2): RaggedTiles(64, 64, 4, 3),
    (128, 2): RaggedTiles(64, 64, 4, 3),
    (256, 2): RaggedTiles(64, 32, 8, 2),
    (16, 4): RaggedTiles(32, 32, 4, 2),
    (32, 4): RaggedTiles(32, 32, 4, 2),
    (64, 4): RaggedTiles(32, 32, 4, 2),
    (128, 4): RaggedTiles(16, 32, 4, 2),
    (256, 4): RaggedTiles(16, 16, 8, 2),
}
# More pairs of a sequence and a key head than most steps have.
_MERGE_COUNTERS = 4096
# The fewest rows of a matrix product on the tensor cores.
MIN_ROWS = 16


def padded(size: int) -> int:
    """Return the next power of two, at least 16: the possible sizes of a tile."""
    return max(MIN_ROWS, int(triton.next_power_of_2(size)))


def dot_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of operands of matrix products; the interpreter does not support bfloat16
    arithmetic."""
    return torch.float32 if INTERPRETED else dtype


def skinny_tiles(rows: int, *, gated: bool) -> SkinnyTiles:
    return _INTERPRETED_SKINNY if INTERPRETED else SKINNY[compiled_rows(rows), gated]


def expert_tiles(rows: int, dtype: torch.dtype) -> ProductTiles:
    return EXPERTS[rows, dtype.itemsize]


def rows_per_expert_tile(pairs: int, experts: int) -> int:
    """Return the rows of a tile for ``pairs`` of a token and one of its experts."""
    return 16 if pairs <= 32 * experts else 64


def compiled_rows(rows: int) -> int:
    """Return for how many rows, at least ``rows``, products of few rows are compiled."""
    return int(triton.next_power_of_2(rows))


def vector_tiles(rows: int, inputs: int, outputs: int, bits: int, group: int) -> VectorTiles:
    """Return the entry for a product of few rows with weights of few bits. For one row of other
    sizes, as many lanes as divide the inputs into whole steps: on an H100 at most 4 % slower than
    the fastest tiles of each matrix of an 8B model."""
    if rows > 1:
        return FEW_BIT_VECTORS[abs(bits)]
    key = bits, inputs, outputs
    if known := FEW_BIT_ROW.get((*key, group)) or FEW_BIT_ROW.get(key):
        return known
    step = 4 * 32 // abs(bits)  # inputs of a lane at a time
    lanes = next((lanes for lanes in (128, 64) if inputs % (lanes * step) == 0), 32)
    columns, turns = 128 // lanes, 4
    while turns > 1 and outputs // (columns * turns) < _VECTOR_PROGRAMS:
        turns //= 2
    return VectorTiles(turns, lanes, 4)


def dot_tiles(rows: int, inputs: int, outputs: int, bits: int, group: int, sms: int) -> DotTiles:
    """Return the table's entry; for other sizes, as many shares of at least 512 inputs as keep
    ``sms`` multiprocessors busy."""
    height = next(height for height in (8, 16, MOST_DOT_ROWS) if rows <= height)
    key = height, bits, inputs, outputs
    if known := FEW_BIT_DOTS.get((*key, group)) or FEW_BIT_DOTS.get(key):
        return known
    # The search has not tried more rows than 16.
    is_float = bits < 0 and height < MOST_DOT_ROWS
    tiles = DotTiles(height, 32, 2, 4, 1) if is_float else DotTiles(height, 64, 4, 3, 1)
    programs, shares = -(-outputs // tiles.columns) * -(-rows // height), 1
    enough = _DOT_PROGRAMS_PER_SM[is_float] * sms
    while programs * shares < enough and inputs // (2 * shares) >= _FEWEST_SHARED_INPUTS:
        shares *= 2
    return replace(tiles, shares=shares)


def decode_tiles(head_dim: int, dtype: torch.dtype) -> DecodeTiles:
    return DECODE[padded(head_dim), dtype.itemsize]


def ragged_tiles(head_dim: int, dtype: torch.dtype) -> RaggedTiles:
    return RAGGED[padded(head_dim), dtype.itemsize]


def uniform_tiles(head_dim: int, dtype: torch.dtype, device: torch.device) -> RaggedTiles:
    """Return the one entry for all rows of attention with ``--deterministic``; with fewer stages
    where a program gets too little shared memory (sm_86, sm_89, sm_120). They only say how early
    keys are fetched, so no sum changes."""
    tiles = UNIFORM[padded(head_dim), dtype.itemsize]
    available = shared_memory(device)
    while tiles.stages > 1 and tiles.shared_bytes(head_dim, dtype.itemsize) > available:
        tiles = replace(tiles, stages=tiles.stages - 1)
    return tiles


@cache
def shared_memory(device: torch.device) -> int:
    """Return the most shared memory that a program may have, in bytes."""
    if device.type != "cuda":
        return 1 << 20  # the interpreter has no limit
    index = torch.cuda.current_device() if device.index is None else device.index
    return int(driver.active.utils.get_device_properties(index)["max_shared_mem"])


@cache
def num_sms(device: torch.device) -> int:
    """Return the device's number of multiprocessors."""
    if device.type != "cuda":
        return _INTERPRETED_SMS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def merge_counters(device: torch.device, needed: int) -> Tensor:
    """Return zeros for ``decode_attention``, int32, at least ``needed``: always the same ones,
    which CUDA graphs may hold. Call it with as many before a graph is recorded."""
    return _merge_counters(device, max(_MERGE_COUNTERS, int(triton.next_power_of_2(needed))))


@cache
def _merge_counters(device: torch.device, size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.int32, device=device)


class _Launching:
    """Whether kernels may start early. One for the process: recorded graphs keep what they have."""

    early = True


def set_early_launch(early: bool) -> None:
    """Let kernels that can (see ``engine.gpu.kernels.dependent``) start before the kernel before
    them has ended, where the device supports it."""
    _Launching.early = early


def early_launch() -> dict[str, Any]:
    """Return the options of a launch whose kernel has a constant ``EARLY``."""
    if _Launching.early and _supports_early_launch():
        return {"EARLY": True, "launch_pdl": True}
    return {"EARLY": False}


@cache
def _supports_early_launch() -> bool:
    if INTERPRETED:
        return False
    target = driver.active.get_current_target()
    return bool(target.backend == "cuda" and target.arch >= _FIRST_WITH_EARLY_LAUNCH)


def warps_for(elements: int) -> int:
    """Return the number of warps for a program that processes ``elements`` at once, row by row."""
    return min(16, max(1, int(triton.next_power_of_2(elements)) // 256))


def attention_constants(
    query: Tensor,
    blocks: Tensor,
    *,
    window: int | None,
    soft_cap: float | None,
    sinks: Tensor | None,
    scales: Tensor | None,
) -> dict[str, Any]:
    """Return the compile-time constants of both attention kernels; for the arguments see
    ``decode_attention``."""
    heads, head_dim = query.shape[1:]
    kv_heads, block_size = blocks.shape[2:4]
    return {
        "KV_HEADS": kv_heads,
        "GROUP": heads // kv_heads,
        "HEAD_DIM": head_dim,
        "DIM": padded(head_dim),
        "BLOCK_SIZE": block_size,
        "WINDOW": window or 0,
        "HAS_CAP": soft_cap is not None,
        "HAS_SINKS": sinks is not None,
        "HAS_SCALES": scales is not None,
        "DTYPE": triton_type(dot_dtype(query.dtype)),
    }


def row_stride(x: Tensor) -> int:
    """Return the number of elements between rows; those of one row must be contiguous."""
    if x.stride(-1) != 1:
        raise ValueError("a row's elements must be adjacent")
    return x.stride(0)
