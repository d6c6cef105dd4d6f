"""The ranks of a model as threads of this process: everything is real but how numbers and messages
travel. A model loads in no time this way, so that every variant can be tried."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from torch import Tensor

from engine.config import EngineConfig
from engine.ranks.channel import encode_message
from engine.ranks.messages import RankStep, Sample, ToRank
from engine.ranks.rank import Follower
from engine.ranks.runner import ParallelRunner
from engine.run.assembly import load_model_runner
from engine.run.model_runner import ModelRunner
from engine.sharding.shard import Shard
from tests.engine.driving import Engine

T = TypeVar("T")

_WAIT_SECONDS = 60.0


class _Table:
    """Where the threads lay what they exchange."""

    def __init__(self, size: int) -> None:
        self.slots: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=_WAIT_SECONDS)


class ThreadCollectives:
    """See ``engine.sharding.collectives.Collectives``."""

    def __init__(self, shard: Shard, table: _Table) -> None:
        self.shard = shard
        self.calls = 0
        self._table = table

    def _exchange(self, value: T) -> list[T]:
        self.calls += 1
        self._table.slots[self.shard.rank] = value
        self._table.barrier.wait()
        everyone = list(self._table.slots)
        self._table.barrier.wait()
        return everyone

    def all_reduce(self, x: Tensor) -> Tensor:
        return torch.stack(self._exchange(x.clone())).sum(0)

    def all_gather(self, x: Tensor) -> Tensor:
        return torch.stack(self._exchange(x.clone()))

    def gather(self, x: Tensor) -> Tensor | None:
        everyone = torch.stack(self._exchange(x.clone()))
        return everyone if self.shard.rank == 0 else None

    def broadcast(self, x: Tensor) -> Tensor:
        return self._exchange(x)[0].clone()

    def minimum(self, value: int) -> int:
        return min(self._exchange(value))

    def replayed(self, calls: int) -> None:
        self.calls += calls


def together(size: int, work: Callable[[ThreadCollectives], T]) -> list[T]:
    """What ``work`` returns on each of ``size`` ranks."""
    table = _Table(size)

    def one(rank: int) -> T:
        try:
            with torch.inference_mode():
                return work(ThreadCollectives(Shard(rank, size), table))
        except BaseException:
            table.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


class _ThreadRanks:
    """Stands where ``engine.ranks.ranks.Ranks`` does, as far as a runner asks."""

    def __init__(self, inboxes: list[queue.SimpleQueue[bytes | None]]) -> None:
        self._inboxes = inboxes

    def step(self, message: RankStep | Sample) -> None:
        for inbox in self._inboxes:
            inbox.put(encode_message(message)[4:])

    sample = step

    def work(self) -> None:
        pass

    rest = work


@contextmanager
def threaded_engine(model: Path, size: int, **settings: Any) -> Iterator[Engine]:
    """The engine with its model on ``size`` ranks."""
    given = {"threads": 1, "dtype": "float32", "device": "cpu"} | settings
    config = EngineConfig(model=str(model), tensor_parallel_size=size, **given)
    table = _Table(size)
    inboxes: list[queue.SimpleQueue[bytes | None]] = [queue.SimpleQueue() for _ in range(1, size)]

    def load(rank: int) -> ModelRunner:
        collectives = ThreadCollectives(Shard(rank, size), table)
        return load_model_runner(config, lambda phase, done, total: None, collectives)

    def follow(rank: int) -> None:
        try:
            follower = Follower(load(rank))
            while (body := inboxes[rank - 1].get()) is not None:
                message = msgspec.msgpack.decode(body, type=ToRank)
                if isinstance(message, RankStep):
                    follower.run(message)
                else:
                    assert isinstance(message, Sample)
                    follower.sample(message)
        except BaseException:
            table.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        followers = [pool.submit(follow, rank) for rank in range(1, size)]
        try:
            runner = ParallelRunner(load(0), _ThreadRanks(inboxes))  # type: ignore[arg-type]
            yield Engine(model, runner=runner, **settings)
        except BaseException:
            table.barrier.abort()
            raise
        finally:
            for inbox in inboxes:
                inbox.put(None)
        for follower in followers:
            follower.result(_WAIT_SECONDS)
