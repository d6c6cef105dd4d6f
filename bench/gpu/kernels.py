"""Attention kernels compared with their lower bounds: the bytes to move and the operations to
compute; and with others' kernels."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.gpu.report import Report, Row
from bench.gpu.timing import Machine
from engine.gpu.kernels.decode_attention import count_tiles, decode_attention
from engine.gpu.kernels.launch import DecodeTiles, RaggedTiles
from engine.gpu.kernels.ragged_attention import ragged_attention
from engine.gpu.kernels.ragged_parts import RaggedParts, plan_parts

BF16: Final = torch.bfloat16


def against(taken: float, floor: float, **facts: Any) -> Row:
    return {"us": taken * 1e6, "floor_us": floor * 1e6, "of_floor": floor / taken, **facts}


@dataclass(frozen=True)
class Contexts:
    """A number of contexts of one length, in scattered blocks; with ``longest`` one more, of that
    length."""

    batch: int
    length: int
    heads: int
    kv_heads: int
    head_dim: int
    block_size: int = 16
    longest: int = 0

    @property
    def lengths(self) -> list[int]:
        return [*([self.longest] if self.longest else []), *[self.length] * self.batch]

    @property
    def kv_bytes(self) -> int:
        return 2 * sum(self.lengths) * self.kv_heads * self.head_dim * 2

    def __str__(self) -> str:
        text = f"batch {self.batch} ctx {self.length} {self.heads}/{self.kv_heads}x{self.head_dim}"
        text += f" and ctx {self.longest}" if self.longest else ""
        return text + (f" block {self.block_size}" if self.block_size != 16 else "")

    def sized(self, machine: Machine) -> Contexts:
        size = machine.size
        return replace(
            self,
            batch=size(self.batch, min(self.batch, 2)),
            length=size(self.length, 40),
            longest=size(self.longest, 90 if self.longest else 0),
        )

    def placed(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Return blocks, tables and lengths."""
        needed = [-(-length // self.block_size) for length in self.lengths]
        shape = (sum(needed), 2, self.kv_heads, self.block_size, self.head_dim)
        blocks = torch.randn(shape, dtype=BF16, device=device)
        order = torch.randperm(sum(needed), dtype=torch.int32)
        tables = torch.zeros(len(needed), max(needed) + -max(needed) % 16, dtype=torch.int32)
        for row, part in enumerate(torch.split(order, needed)):
            tables[row, : len(part)] = part
        lengths = torch.tensor(self.lengths, dtype=torch.int32)
        return blocks, tables.to(device), lengths.to(device)


DECODE: Final = [
    Contexts(64, 8192, 32, 8, 128),
    Contexts(64, 4096, 32, 8, 128, longest=131_072),
    Contexts(1, 8192, 32, 8, 128),
    Contexts(256, 1024, 16, 8, 128),
    Contexts(64, 8192, 32, 8, 128, block_size=64),
    Contexts(16, 2048, 32, 8, 64),
]
PREFILL: Final = [Contexts(1, 8192, 32, 8, 128), Contexts(8, 1024, 32, 8, 128)]
# The last tokens of a long prompt.
BEHIND: Final = Contexts(1, 30_064, 32, 8, 128)
BEHIND_TOKENS: Final = 64
BEHIND_ROW: Final = "kernel ragged 64 behind 30k 32/8x128"


def first_rows(report: Report, machine: Machine) -> None:
    """Add the rows that have goals."""
    for contexts in DECODE[:2]:
        report.add(f"kernel decode {contexts}", partial(decode, contexts, machine))
    _prefill_rows(report, machine, PREFILL[:1])
    report.add(BEHIND_ROW, partial(behind, BEHIND, machine))


def other_rows(report: Report, machine: Machine) -> None:
    for contexts in DECODE[2:]:
        report.add(f"kernel decode {contexts}", partial(decode, contexts, machine))
    _prefill_rows(report, machine, PREFILL[1:])
    for name, measure in flashinfer_rows(machine).items():
        report.add(name, measure)


def _prefill_rows(report: Report, machine: Machine, works: Items[Contexts]) -> None:
    for contexts in works:
        report.add(f"kernel ragged prefill {contexts}", partial(prefill, contexts, machine))
        for peer in ("cudnn", "flash"):
            report.add(f"peer {peer} prefill {contexts}", partial(sdpa, contexts, machine, peer))


def decode(contexts: Contexts, machine: Machine, tiles: DecodeTiles | None = None) -> Row:
    own = contexts.sized(machine)

    def inputs() -> Callable[[], Tensor]:
        blocks, tables, lengths = own.placed(machine.device)
        shape = (len(own.lengths), own.heads, own.head_dim)
        query = torch.randn(shape, dtype=BF16, device=machine.device)
        # Once for all layers of a step, so it does not count.
        counts = None
        if tiles is None:
            counts = count_tiles(lengths, head_dim=own.head_dim, dtype=BF16, window=None)
        return lambda: decode_attention(
            query, blocks, tables, lengths, scale=0.1, tiles=tiles, counts=counts
        )

    taken = machine.seconds([inputs() for _ in range(machine.copies(own.kv_bytes))])
    floor = machine.ceilings.floor(moved=contexts.kv_bytes)
    return against(taken, floor, gb_s=contexts.kv_bytes / taken / 1e9)


def causal_operations(contexts: Contexts) -> float:
    pairs = contexts.batch * contexts.length * (contexts.length + 1) / 2
    return 4.0 * pairs * contexts.heads * contexts.head_dim


def prefill(contexts: Contexts, machine: Machine, tiles: RaggedTiles | None = None) -> Row:
    own, device = contexts.sized(machine), machine.device
    blocks, tables, lengths = own.placed(device)
    cu_seqlens = torch.arange(own.batch + 1, dtype=torch.int32, device=device) * own.length
    query = torch.randn(own.batch * own.length, own.heads, own.head_dim, dtype=BF16, device=device)
    attend = partial(
        ragged_attention,
        *(query, blocks, tables, lengths, cu_seqlens, own.length),
        scale=0.1,
        tiles=tiles,
        parts=_parts(own, lengths, cu_seqlens, own.length, tiles),
    )
    return _computed(contexts, machine, machine.seconds([attend]))


def _parts(
    own: Contexts, lengths: Tensor, cu_seqlens: Tensor, count: int, tiles: RaggedTiles | None
) -> RaggedParts:
    """Plan ``count`` tokens of each context: once for all layers of a step, so it is not
    measured."""
    return plan_parts(
        *(lengths, cu_seqlens, count),
        rows=own.batch * count,
        heads=own.heads,
        kv_heads=own.kv_heads,
        head_dim=own.head_dim,
        dtype=BF16,
        window=None,
        tiles=tiles,
    )


def behind(contexts: Contexts, machine: Machine, tiles: RaggedTiles | None = None) -> Row:
    """Measure the last ``BEHIND_TOKENS`` tokens of a context."""
    own, count = contexts.sized(machine), machine.size(BEHIND_TOKENS, 5)

    def inputs() -> Callable[[], Tensor]:
        blocks, tables, lengths = own.placed(machine.device)
        query = torch.randn(count, own.heads, own.head_dim, dtype=BF16, device=machine.device)
        cu_seqlens = torch.tensor([0, count], dtype=torch.int32, device=machine.device)
        return partial(
            ragged_attention,
            *(query, blocks, tables, lengths, cu_seqlens, count),
            scale=0.1,
            tiles=tiles,
            parts=_parts(own, lengths, cu_seqlens, count, tiles),
        )

    taken = machine.seconds([inputs() for _ in range(machine.copies(own.kv_bytes))])
    pairs = BEHIND_TOKENS * (contexts.length - (BEHIND_TOKENS - 1) / 2)
    operations = 4.0 * pairs * contexts.heads * contexts.head_dim
    floor = machine.ceilings.floor(moved=contexts.kv_bytes, computed=operations)
    return against(
        taken, floor, gb_s=contexts.kv_bytes / taken / 1e9, tflop_s=operations / taken / 1e12
    )


def _computed(contexts: Contexts, machine: Machine, taken: float) -> Row:
    operations = causal_operations(contexts)
    floor = machine.ceilings.floor(computed=operations)
    return against(taken, floor, tflop_s=operations / taken / 1e12)


def sdpa(contexts: Contexts, machine: Machine, peer: str) -> Row:
    """Measure torch's attention over keys that lie together, by cuDNN or FlashAttention 2."""
    own = contexts.sized(machine)
    backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    backend = SDPBackend.MATH if machine.dry else backends[peer]
    of_queries = (own.batch, own.heads, own.length, own.head_dim)
    q = torch.randn(of_queries, dtype=BF16, device=machine.device)
    of_keys = (own.batch, own.kv_heads, own.length, own.head_dim)
    k, v = torch.randn(2, *of_keys, dtype=BF16, device=machine.device)

    def attend() -> Tensor:
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=0.1, enable_gqa=True
            )

    return _computed(contexts, machine, machine.seconds([attend]))


def flashinfer_rows(machine: Machine) -> dict[str, Callable[[], Row]]:
    """Return the same work with flashinfer, if it is installed: its paged layout HND is the same
    as Quire's."""
    try:
        import flashinfer
    except ImportError:
        return {}

    def decode_row() -> Row:
        contexts, device = DECODE[0], machine.device
        blocks, tables, _ = contexts.placed(device)
        pages = tables.shape[1]
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            torch.empty(128 << 20, dtype=torch.uint8, device=device), "HND", use_tensor_cores=True
        )
        wrapper.plan(
            torch.arange(0, contexts.batch * pages + 1, pages, dtype=torch.int32, device=device),
            tables.flatten(),
            torch.full((contexts.batch,), contexts.block_size, dtype=torch.int32, device=device),
            *(contexts.heads, contexts.kv_heads, contexts.head_dim, contexts.block_size),
            q_data_type=BF16,
            kv_data_type=BF16,
        )
        shape = (contexts.batch, contexts.heads, contexts.head_dim)
        query = torch.randn(shape, dtype=BF16, device=device)
        taken = machine.seconds([lambda: wrapper.run(query, blocks)])
        return against(taken, machine.ceilings.floor(moved=contexts.kv_bytes))

    return {f"peer flashinfer decode {DECODE[0]}": decode_row}
