"""Collective operations among the ranks of one model, with torch.distributed: gloo between
processes on a CPU, NCCL between GPUs.

Every rank makes the same calls in the same order. A call counts when it begins, so equal counts
mean that two ranks are in the same position.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from engine.sharding.shard import Shard
from engine.sharding.symmetric import OneShotSums, one_shot_sums

# For one call, or until the ranks have found each other. ``engine.ranks.ranks`` notices a hanging
# rank sooner; this limit must not expire first while one rank still loads its weights and the
# others wait.
_LONGEST_CALL = timedelta(hours=2)
# To reach the leader's store on another host. The leader has opened it before it says where.
_CONNECT = timedelta(seconds=60)


class CollectiveError(RuntimeError):
    """The ranks cannot reach each other, most often because one has ended."""


class Collectives(Protocol):
    @property
    def shard(self) -> Shard: ...

    @property
    def calls(self) -> int:
        """The number of calls begun."""
        ...

    def all_reduce(self, x: Tensor) -> Tensor:
        """Return the sum of all ranks' ``x``, bit-identical on every rank; ``x`` may be
        overwritten."""
        ...

    def all_gather(self, x: Tensor) -> Tensor:
        """Return [size, *shape] of all ranks' ``x``, which have the same shape and dtype."""
        ...

    def gather(self, x: Tensor) -> Tensor | None:
        """Like ``all_gather`` on rank 0; None on the others."""
        ...

    def broadcast(self, x: Tensor) -> Tensor:
        """Return rank 0's ``x``; the others' must have its shape and dtype, and may be
        overwritten."""
        ...

    def minimum(self, value: int) -> int:
        """Return the minimum of all ranks' values."""
        ...

    def replayed(self, calls: int) -> None:
        """Count calls that a CUDA graph repeats."""
        ...


class Alone:
    """A single rank: nothing is exchanged."""

    shard = Shard(0, 1)
    calls = 0

    def all_reduce(self, x: Tensor) -> Tensor:
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        return x.unsqueeze(0)

    def gather(self, x: Tensor) -> Tensor | None:
        return x.unsqueeze(0)

    def broadcast(self, x: Tensor) -> Tensor:
        return x

    def minimum(self, value: int) -> int:
        return value

    def replayed(self, calls: int) -> None:
        pass


ALONE = Alone()


class Meeting(NamedTuple):
    """How the ranks find each other. ``interface``: the network interface that gloo uses; None:
    what its variable says, else its own choice."""

    store: Any  # a file, or a torch.distributed.Store
    interface: str | None

    @classmethod
    def on_one_host(cls, store: Path) -> Self:
        """``store``: a file that all ranks can write; it must not exist before, and must be
        inaccessible to others. No one else can connect to a rank either."""
        return cls(store, "lo0" if sys.platform == "darwin" else "lo")

    @classmethod
    def led_here(cls, listener: socket.socket, address: str, interface: str | None) -> Self:
        """Rank 0's, with several hosts: they meet at ``listener``, which this takes over;
        ``address``: where this host reaches it. Raises CollectiveError."""
        port = listener.getsockname()[1]
        with _as_collective_error():
            store = TCPStore(
                address,
                port,
                is_master=True,
                timeout=_LONGEST_CALL,
                wait_for_workers=False,
                master_listen_fd=listener.detach(),  # by itself it would listen on all addresses
            )
        return cls(store, interface)

    @classmethod
    def at(cls, leader: str, port: int, interface: str | None) -> Self:
        """The others', with several hosts. Raises CollectiveError."""
        try:
            store = TCPStore(leader, port, timeout=_CONNECT)
        except RuntimeError as error:
            raise CollectiveError(
                f"cannot reach {leader}:{port} within {_CONNECT.total_seconds():.0f} s; all ports "
                f"between the hosts must be open, not only --ranks-port ({error})"
            ) from error
        store.set_timeout(_LONGEST_CALL)
        return cls(store, interface)

    @property
    def port(self) -> int:
        """The port of a store with several hosts, else 0."""
        return int(self.store.port) if isinstance(self.store, TCPStore) else 0


class Group:
    """The ranks of one model. A process can be in only one such group at a time.

    ``device``: this rank's own. ``symmetric_memory``: GPUs of one host add up few rows through
    memory that they share, if they can. Raises CollectiveError when the other ranks do not join.
    """

    def __init__(
        self,
        shard: Shard,
        device: torch.device,
        meeting: Meeting,
        *,
        symmetric_memory: bool = True,
    ) -> None:
        self.shard = shard
        self.calls = 0
        self._device = device
        self._is_nccl = device.type == "cuda"
        if not self._is_nccl and meeting.interface is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", meeting.interface)
        store = meeting.store
        is_file = isinstance(store, Path)
        with _as_collective_error():
            dist.init_process_group(
                "nccl" if self._is_nccl else "gloo",
                init_method=f"file://{store}" if is_file else None,
                store=None if is_file else store,
                rank=shard.rank,
                world_size=shard.size,
                timeout=_LONGEST_CALL,
                device_id=device if self._is_nccl else None,
            )
        self._sums_of_few: OneShotSums | None = None
        if self._is_nccl and shard.size > 1 and symmetric_memory:
            assert dist.group.WORLD is not None
            self._sums_of_few = one_shot_sums(self, device, dist.group.WORLD.group_name)

    def all_reduce(self, x: Tensor) -> Tensor:
        self.calls += 1
        with _as_collective_error():
            if self._sums_of_few is not None and self._sums_of_few.fits(x):
                return self._sums_of_few(x)
            dist.all_reduce(x)
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = x.contiguous()
        out = x.new_empty((self.shard.size, *x.shape))
        with _as_collective_error():
            dist.all_gather(list(out.unbind(0)), x)
        return out

    def gather(self, x: Tensor) -> Tensor | None:
        self.calls += 1
        x = x.contiguous()
        out = None
        if self.shard.rank == 0:
            out = x.new_empty((self.shard.size, *x.shape))
        with _as_collective_error():
            dist.gather(x, None if out is None else list(out.unbind(0)), dst=0)
        return out

    def broadcast(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = x.contiguous()
        with _as_collective_error():
            dist.broadcast(x, src=0)
        return x

    def minimum(self, value: int) -> int:
        self.calls += 1
        least = torch.tensor([value], dtype=torch.int64, device=self._device)
        with _as_collective_error():
            dist.all_reduce(least, op=dist.ReduceOp.MIN)
        return int(least.item())

    def replayed(self, calls: int) -> None:
        self.calls += calls

    def close(self) -> None:
        """Leave the group. NCCL's part is left to the end of the process: it would wait for ranks
        that may be gone."""
        if not self._is_nccl and dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def _as_collective_error() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise CollectiveError(f"the ranks lost each other: {error}") from error
