"""Attention of parts of prompts by flashinfer, which divides a step's work on the host, once for
all layers with the same window (its ``plan``), and reads the KV cache as it lies.

The package is optional. Untested on a GPU: the calls are checked against its documented signatures
(flashinfer-python 0.6.4).
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from engine.attention.layout import Ragged
from engine.gpu.availability import KernelsUnavailableError
from engine.gpu.fresh import FEWEST_ROWS

# Heads that flashinfer has compiled kernels for.
_HEAD_DIMS = (64, 128, 256)
_LEAST_WORKSPACE_BYTES = 128 << 20  # what its documentation recommends
# Where contexts are divided among several blocks of threads, each writes a tile of so many rows
# (queries times heads of a key head) to the workspace, and so many blocks run on a multiprocessor.
_TILE_ROWS = 128
_BLOCKS_PER_SM = 2
_PACKAGE = "flashinfer"

PlannedRun = Callable[[Tensor, Tensor, float, Tensor], None]
"""Attends from the chunks' queries [rows, heads, head_dim] to the cache's blocks, with a scale, and
writes [rows, heads * head_dim]."""


@dataclass(slots=True)
class PlannedAttention:
    """``heads`` and ``kv_heads``: of this rank. ``fewest``: it is used from so many rows of prompts
    in a step on; steps with fewer are recorded, and a plan cannot be."""

    heads: int
    kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype
    device: torch.device
    fewest: int = FEWEST_ROWS
    _wrappers: dict[int | None, list[Any]] = field(default_factory=dict)
    _workspace: Tensor | None = None

    @property
    def workspace_bytes(self) -> int:
        """What a plan needs at most; with less it fails. Parts of results and their log-sum-exp in
        float32, of as many blocks as run at a time."""
        if self.device.type != "cuda":
            return _LEAST_WORKSPACE_BYTES
        sms = torch.cuda.get_device_properties(self.device).multi_processor_count
        tiles = _BLOCKS_PER_SM * sms // self.kv_heads
        elements = self.heads * tiles * _TILE_ROWS * (self.head_dim + 1)
        # And some to align both.
        return max(_LEAST_WORKSPACE_BYTES, torch.float32.itemsize * elements + 1024)

    def fits(self, tables: Ragged) -> bool:
        return sum(tables.sizes) >= self.fewest

    def plan(self, tables: Ragged, window: int | None) -> PlannedRun:
        """Divide the work of the chunks in ``tables``. Reads nothing from the device."""
        pages = [-(-context // self.block_size) for context in tables.contexts]
        lasts = [
            context - (count - 1) * self.block_size
            for context, count in zip(tables.contexts, pages, strict=True)
        ]
        wrapper = self._next_wrapper(window)
        wrapper.plan(
            self._host([0, *accumulate(tables.sizes)]),
            self._host([0, *accumulate(pages)]),
            torch.cat([tables.chunk_blocks[i, :count] for i, count in enumerate(pages)]),
            self._host(lasts),
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.block_size,
            causal=True,
            sm_scale=1.0,
            window_left=-1 if window is None else window - 1,
            q_data_type=self.dtype,
            kv_data_type=self.dtype,
        )

        def run(query: Tensor, blocks: Tensor, scale: float, out: Tensor) -> None:
            # A factor of the keys is one of the scores; layers may differ in it. Our kernels let
            # the next one start early: flashinfer's would all have to wait for them as ours do.
            wrapper.run(
                query.contiguous(),
                blocks,
                k_scale=scale,
                out=out.view(query.shape),
                enable_pdl=False,
            )

        return run

    def _next_wrapper(self, window: int | None) -> Any:
        """Return the one of two that the step before the last has used: a plan is written to memory
        from which the device may still copy the last step's."""
        own = self._wrappers.setdefault(window, [])
        if len(own) < 2:
            if self._workspace is None:
                self._workspace = torch.empty(
                    self.workspace_bytes, dtype=torch.uint8, device=self.device
                )
            module = importlib.import_module(_PACKAGE)
            own.append(module.BatchPrefillWithPagedKVCacheWrapper(self._workspace, "HND"))
        else:
            own.append(own.pop(0))
        return own[-1]

    def _host(self, values: list[int]) -> Tensor:
        """Return what flashinfer reads here and copies to the device without waiting for it."""
        return torch.tensor(values, dtype=torch.int32, pin_memory=self.device.type == "cuda")

    def prepare(self, windows: set[int | None]) -> None:
        """Attend once with each window, so that what flashinfer compiles exists before a request
        waits for it."""
        size = (1, 2, self.kv_heads, self.block_size, self.head_dim)
        blocks = torch.zeros(size, dtype=self.dtype, device=self.device)
        query = blocks.new_zeros(2, self.heads, self.head_dim)
        out = blocks.new_empty(2, self.heads * self.head_dim)
        nothing = torch.zeros(0, dtype=torch.int32, device=self.device)
        tables = Ragged(
            *(nothing, nothing, nothing, nothing),
            chunk_blocks=torch.zeros(1, 1, dtype=torch.int32, device=self.device),
            cu_seqlens=nothing,
            longest=2,
            sizes=(2,),
            contexts=(2,),
        )
        for window in windows:
            self.plan(tables, window)(query, blocks, 1.0, out)


def require_flashinfer(attention: PlannedAttention, windows: set[int | None]) -> None:
    """Raise KernelsUnavailableError if flashinfer cannot attend with these heads."""
    if importlib.util.find_spec(_PACKAGE) is None:
        raise KernelsUnavailableError(
            "flashinfer is not installed here; pip install flashinfer-python installs it"
        )
    if attention.device.type != "cuda":
        raise KernelsUnavailableError("flashinfer needs an NVIDIA GPU")
    if attention.dtype.itemsize != 2:
        raise KernelsUnavailableError(
            f"flashinfer computes in 16 bits, and the model is in "
            f"{str(attention.dtype).removeprefix('torch.')}; --dtype bfloat16 would be"
        )
    if attention.head_dim not in _HEAD_DIMS:
        raise KernelsUnavailableError(
            f"flashinfer attends with heads of {', '.join(map(str, _HEAD_DIMS))}, and this model's "
            f"have {attention.head_dim}"
        )
    try:
        attention.prepare(windows)
        torch.cuda.synchronize(attention.device)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise KernelsUnavailableError(f"flashinfer cannot attend here ({reason})") from error
