"""Sums over the GPUs of one machine for few rows: each GPU copies its part to memory that all of
them have mapped (torch's symmetric memory), reads all parts from there, adds them in the order of
the ranks and so gets the same bits. NCCL takes about twice as long for few rows, and less for many,
as each part then crosses the links fewer times.

The copy is a separate launch. Torch also has ``one_shot_all_reduce_copy``, which copies and adds in
one, but there a block's first warp signals to the other GPUs that its part is in place without
waiting for the block's other warps, which may still be copying (CUDASymmetricMemoryOps.cu): the sum
could have old values in it.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from engine.sharding.shard import Shard

if TYPE_CHECKING:
    from engine.sharding.collectives import Collectives

_log = logging.getLogger(__name__)

MOST_SUMMED_BYTES: Final = 512 << 10
# torch's kernel adds in these types, and loads so many bytes at a time.
_DTYPES: Final = (torch.bfloat16, torch.float32)
_ALIGNMENT: Final = 16
_OPERATION: Final = "one_shot_all_reduce"
_TRIALS: Final = 8


class OneShotSums:
    """``buffer``: at least ``MOST_SUMMED_BYTES`` bytes that all ranks of ``group`` have mapped. May
    be recorded in a CUDA graph."""

    def __init__(self, buffer: Tensor, group: str) -> None:
        self._buffer = buffer
        self._group = group

    def fits(self, x: Tensor) -> bool:
        """The same on all ranks for tensors of the same shape and dtype."""
        return (
            x.dtype in _DTYPES and 0 < x.nbytes <= MOST_SUMMED_BYTES and x.nbytes % _ALIGNMENT == 0
        )

    def __call__(self, x: Tensor) -> Tensor:
        """Return the sum of all ranks' ``x``. The operator begins and ends with a barrier of the
        ranks: it reads no part before it is in place, and has read all parts on all ranks when it
        has ended on any, so that the next copy may follow at once."""
        place = self._buffer[: x.nbytes].view(x.dtype).view(x.shape)
        place.copy_(x)
        found: Tensor = getattr(torch.ops.symm_mem, _OPERATION)(place, "sum", self._group)
        return found


class _Attempt:
    """The steps of one rank, each of which raises if it fails here."""

    def __init__(self, shard: Shard, device: torch.device, group: str) -> None:
        self._shard = shard
        self._device = device
        self._group = group
        self._buffer = torch.empty(0, dtype=torch.uint8)
        # A private module of torch: not every build has it, and what it raises is not documented.
        self._memory: Any = None

    @property
    def sums(self) -> OneShotSums:
        return OneShotSums(self._buffer, self._group)

    def allocate(self) -> None:
        if not hasattr(torch.ops.symm_mem, _OPERATION):
            raise RuntimeError(f"torch {torch.__version__} has no symm_mem.{_OPERATION}")
        own = self._device.index
        for peer in range(self._shard.size):
            if peer != own and not torch.cuda.can_device_access_peer(own, peer):
                raise RuntimeError(f"GPU {own} cannot access the memory of GPU {peer}")
        self._memory = importlib.import_module("torch.distributed._symmetric_memory")
        self._buffer = self._memory.empty(MOST_SUMMED_BYTES, dtype=torch.uint8, device=self._device)

    def join(self) -> None:
        self._memory.rendezvous(self._buffer, self._group)

    def add_up(self) -> None:
        """Compute some sums before anything depends on them: as large as any will be, and one right
        after the other."""
        rank, size = self._shard.rank, self._shard.size
        of_ranks = size * (size + 1) / 2
        parts = torch.full((_TRIALS, MOST_SUMMED_BYTES // 4), rank + 1.0, device=self._device)
        parts += torch.arange(_TRIALS, device=self._device).unsqueeze(1)
        found = [self.sums(part) for part in parts]
        for trial, whole in enumerate(found):
            expected = of_ranks + size * trial
            wrong = whole[whole != expected].tolist()
            if wrong:
                raise RuntimeError(f"a trial gave {wrong[0]}, not {expected}")


def one_shot_sums(collectives: Collectives, device: torch.device, group: str) -> OneShotSums | None:
    """Return what sums few rows, on all ranks or on none; if on none, one sentence in the log says
    why. All ranks call it, each with its own ``device``, whose index is its rank."""
    attempt = _Attempt(collectives.shard, device, group)
    for step in (attempt.allocate, attempt.join, attempt.add_up):
        why_not = ""
        try:
            step()
        except Exception as error:
            why_not = (str(error).strip() or type(error).__name__).splitlines()[0]
        # None may continue alone: it would wait for the others without an end.
        if not collectives.minimum(int(not why_not)):
            why_not = why_not or "another rank cannot; its log says why"
            _log.info("torch's symmetric memory is not used, NCCL adds up all rows: %s", why_not)
            return None
    return attempt.sums
