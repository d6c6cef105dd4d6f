"""Kernels compared with their lower bounds: the bytes to move and the operations to compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.gpu.report import Report, Row
from bench.gpu.timing import Ceilings, copies, seconds
from engine.gpu.kernels.activation import gated
from engine.gpu.kernels.decode_attention import decode_attention
from engine.gpu.kernels.launch import DecodeTiles, RaggedTiles
from engine.gpu.kernels.logprobs import gather_logprobs
from engine.gpu.kernels.product import product
from engine.gpu.kernels.ragged_attention import ragged_attention
from engine.gpu.kernels.rms_norm import add_rms_norm
from engine.gpu.kernels.rope_store import norm_rope_store
from engine.gpu.kernels.sampling import sample
from engine.gpu.kernels.skinny import FEW_ROWS, skinny_product
from engine.messages import SamplingParams
from engine.sampling.device import sampling_tensors

DEVICE = torch.device("cuda")
BF16 = torch.bfloat16


def against(taken: float, floor: float, **facts: Any) -> Row:
    return {"us": taken * 1e6, "floor_us": floor * 1e6, "of_floor": floor / taken, **facts}


@dataclass(frozen=True)
class Contexts:
    """A number of contexts of one length, in scattered blocks."""

    batch: int
    length: int
    heads: int
    kv_heads: int
    head_dim: int
    block_size: int = 16

    @property
    def kv_bytes(self) -> int:
        return 2 * self.batch * self.length * self.kv_heads * self.head_dim * 2

    def __str__(self) -> str:
        return f"batch {self.batch} ctx {self.length} {self.heads}/{self.kv_heads}x{self.head_dim}"

    def blocks(self) -> Tensor:
        count = self.batch * -(-self.length // self.block_size)
        shape = (count, 2, self.kv_heads, self.block_size, self.head_dim)
        return torch.randn(shape, dtype=BF16, device=DEVICE)

    def tables(self, blocks: Tensor) -> Tensor:
        order = torch.randperm(blocks.shape[0], device=DEVICE, dtype=torch.int32)
        return order.view(self.batch, -1)


DECODE = [
    Contexts(64, 8192, 32, 8, 128),
    Contexts(1, 8192, 32, 8, 128),
    Contexts(256, 1024, 16, 8, 128),
    Contexts(16, 2048, 32, 8, 64),
]
PREFILL = [Contexts(1, 8192, 32, 8, 128), Contexts(8, 1024, 32, 8, 128)]


def measure_all(report: Report, ceilings: Ceilings, *, quick: bool) -> None:
    for contexts in DECODE[: 1 if quick else None]:
        report.add(f"kernel decode {contexts}", partial(decode, contexts, ceilings))
    for contexts in PREFILL[: 1 if quick else None]:
        report.add(f"kernel ragged prefill {contexts}", partial(prefill, contexts, ceilings))
        report.add(f"peer sdpa prefill {contexts}", partial(sdpa, contexts, ceilings))
    for name, measure in flashinfer_rows(ceilings).items():
        report.add(name, measure)
    report.add("kernel add_rms_norm 4096x4096", partial(norm, ceilings))
    report.add("kernel gated 4096x14336", partial(gate, ceilings))
    report.add("kernel norm_rope_store 4096 rows 32/8x128", partial(rope, ceilings))
    kinds: dict[str, dict[str, Any]] = {
        "greedy": {"temperature": 0.0},
        "top_p": {"top_p": 0.9},
        "plain": {},
    }
    for rows in (1, 256):
        for name, kind in kinds.items():
            for spread in (4.0, 0.1) if name == "top_p" else (4.0,):
                report.add(
                    f"kernel sampling {name} {rows}x151936 spread {spread}",
                    partial(sampling, rows, kind, spread, ceilings),
                )
    report.add("kernel logprobs 256x151936", partial(logprobs, ceilings))
    for rows in (1, 16, 64):
        for outputs in (6144, 28672):
            for name, multiply in PRODUCTS.items():
                if rows <= FEW_ROWS or multiply is not skinny_product:
                    report.add(
                        f"product {name} {rows}x4096x{outputs}",
                        partial(multiplied, multiply, rows, outputs, ceilings),
                    )


def decode(contexts: Contexts, ceilings: Ceilings, tiles: DecodeTiles | None = None) -> Row:
    def inputs() -> Callable[[], Tensor]:
        blocks = contexts.blocks()
        tables = contexts.tables(blocks)
        lengths = torch.full((contexts.batch,), contexts.length, dtype=torch.int32, device=DEVICE)
        shape = (contexts.batch, contexts.heads, contexts.head_dim)
        query = torch.randn(shape, dtype=BF16, device=DEVICE)
        return lambda: decode_attention(query, blocks, tables, lengths, scale=0.1, tiles=tiles)

    taken = seconds([inputs() for _ in range(copies(contexts.kv_bytes))])
    floor = ceilings.floor(moved=contexts.kv_bytes)
    return against(taken, floor, gb_s=contexts.kv_bytes / taken / 1e9)


def causal_flops(contexts: Contexts) -> float:
    pairs = contexts.batch * contexts.length * (contexts.length + 1) / 2
    return 4.0 * pairs * contexts.heads * contexts.head_dim


def prefill(contexts: Contexts, ceilings: Ceilings, tiles: RaggedTiles | None = None) -> Row:
    blocks = contexts.blocks()
    tables = contexts.tables(blocks)
    lengths = torch.full((contexts.batch,), contexts.length, dtype=torch.int32, device=DEVICE)
    rows = contexts.batch * contexts.length
    starts = torch.arange(0, rows + 1, contexts.length, dtype=torch.int32, device=DEVICE)
    query = torch.randn(rows, contexts.heads, contexts.head_dim, dtype=BF16, device=DEVICE)
    taken = seconds(
        [
            lambda: ragged_attention(
                *(query, blocks, tables, lengths, starts, contexts.length), scale=0.1, tiles=tiles
            )
        ]
    )
    flops = causal_flops(contexts)
    return against(taken, ceilings.floor(computed=flops), tflop_s=flops / taken / 1e12)


def sdpa(contexts: Contexts, ceilings: Ceilings) -> Row:
    """Measure torch's own attention, with contiguous keys."""
    kv = (contexts.batch, contexts.kv_heads, contexts.length, contexts.head_dim)
    q = torch.randn(contexts.batch, contexts.heads, *kv[2:], dtype=BF16, device=DEVICE)
    k, v = torch.randn(2, *kv, dtype=BF16, device=DEVICE)
    taken = seconds(
        [
            lambda: functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=0.1, enable_gqa=True
            )
        ]
    )
    flops = causal_flops(contexts)
    return against(taken, ceilings.floor(computed=flops), tflop_s=flops / taken / 1e12)


def flashinfer_rows(ceilings: Ceilings) -> dict[str, Callable[[], Row]]:
    """Return the same work with flashinfer, if it is installed: its paged layout HND is the same
    as Quire's."""
    try:
        import flashinfer
    except ImportError:
        return {}

    def decode_row() -> Row:
        contexts = DECODE[0]
        blocks = contexts.blocks()
        tables = contexts.tables(blocks)
        pages = tables.shape[1]
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            torch.empty(128 << 20, dtype=torch.uint8, device=DEVICE), "HND", use_tensor_cores=True
        )
        wrapper.plan(
            torch.arange(0, contexts.batch * pages + 1, pages, dtype=torch.int32, device=DEVICE),
            tables.flatten(),
            torch.full((contexts.batch,), contexts.block_size, dtype=torch.int32, device=DEVICE),
            *(contexts.heads, contexts.kv_heads, contexts.head_dim, contexts.block_size),
            q_data_type=BF16,
            kv_data_type=BF16,
        )
        shape = (contexts.batch, contexts.heads, contexts.head_dim)
        query = torch.randn(shape, dtype=BF16, device=DEVICE)
        taken = seconds([lambda: wrapper.run(query, blocks)])
        return against(taken, ceilings.floor(moved=contexts.kv_bytes))

    return {f"peer flashinfer decode {DECODE[0]}": decode_row}


def norm(ceilings: Ceilings) -> Row:
    weight = torch.randn(4096, device=DEVICE, dtype=BF16)

    def inputs() -> Callable[[], Tensor]:
        x, residual = torch.randn(2, 4096, 4096, device=DEVICE, dtype=BF16)
        return lambda: add_rms_norm(x, residual, weight, 1e-5)

    size = 4096 * 4096 * 2
    taken = seconds([inputs() for _ in range(copies(2 * size))])
    return against(taken, ceilings.floor(moved=4 * size))


def gate(ceilings: Ceilings) -> Row:
    def inputs() -> Callable[[], Tensor]:
        gate_up = torch.randn(4096, 2 * 14336, device=DEVICE, dtype=BF16)
        return lambda: gated(gate_up, "silu")

    size = 4096 * 14336 * 2
    taken = seconds([inputs() for _ in range(copies(2 * size))])
    return against(taken, ceilings.floor(moved=3 * size))


def rope(ceilings: Ceilings) -> Row:
    rows, heads, kv_heads, head_dim = 4096, 32, 8, 128
    positions = torch.arange(rows, device=DEVICE, dtype=torch.int32)
    rotations = torch.randn(rows, head_dim // 2, 2, device=DEVICE)
    blocks = torch.zeros(rows // 16, 2, kv_heads, 16, head_dim, device=DEVICE, dtype=BF16)

    def inputs() -> Callable[[], None]:
        qkv = torch.randn(rows, heads + 2 * kv_heads, head_dim, device=DEVICE, dtype=BF16)
        return lambda: norm_rope_store(
            qkv, blocks, positions, positions, num_heads=heads, rotations=rotations
        )

    size = rows * (heads + 2 * kv_heads) * head_dim * 2
    taken = seconds([inputs() for _ in range(copies(size))])
    return against(taken, ceilings.floor(moved=2 * size))


def sampling(rows: int, kind: dict[str, Any], spread: float, ceilings: Ceilings) -> Row:
    """``spread``: of the logits. Nearly flat rows force a filter to scan the whole vocabulary."""
    vocabulary = 151_936
    params = [SamplingParams(max_tokens=1, seed=row, **kind) for row in range(rows)]
    tensors = sampling_tensors(params, vocabulary, DEVICE)
    positions = torch.arange(rows, device=DEVICE, dtype=torch.int32)
    size = rows * vocabulary * 2

    def inputs() -> Callable[[], object]:
        logits = (torch.randn(rows, vocabulary, device=DEVICE) * spread).to(BF16)
        return lambda: sample(logits, tensors, positions)

    taken = seconds([inputs() for _ in range(min(8, copies(size)))])
    return against(taken, ceilings.floor(moved=size))


def logprobs(ceilings: Ceilings) -> Row:
    logits = torch.randn(256, 151_936, device=DEVICE)
    tokens = torch.randint(0, 151_936, (256,), device=DEVICE)
    taken = seconds([lambda: gather_logprobs(logits, tokens)])
    return against(taken, ceilings.floor(moved=logits.nbytes))


PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "torch": functional.linear,
    "skinny": skinny_product,
    "deterministic": product,
}


def multiplied(
    multiply: Callable[[Tensor, Tensor], Tensor], rows: int, outputs: int, ceilings: Ceilings
) -> Row:
    """Measure a matrix product: a decode step is mostly products that stream a weight for a few
    rows. The weights in turn do not fit the L2 cache."""
    size = 4096 * outputs * 2
    weights = torch.randn(max(2, 2**28 // size), outputs, 4096, device=DEVICE, dtype=BF16)
    x = torch.randn(rows, 4096, device=DEVICE, dtype=BF16)
    taken = seconds([partial(multiply, x, weight) for weight in weights])
    return against(taken, ceilings.floor(moved=size), gb_s=size / taken / 1e9)
