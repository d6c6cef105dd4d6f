"""A model on several ranks, each a process, driven from this one, which is rank 0."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from engine.config import EngineConfig
from engine.ranks.ranks import Ranks
from engine.ranks.runner import ParallelRunner, parallel_runner
from engine.ranks.watch import RankLimits
from tests.e2e.quire_server import command_of, is_running
from tests.engine.driving import Engine

# A loaded machine must not look like a broken one.
PATIENT = RankLimits(silence=120, stall=240, alone=60, settle=60, exit=240)


@contextmanager
def parallel(
    model: Path,
    size: int,
    *,
    limits: RankLimits = PATIENT,
    module: str = "engine.ranks.rank",
    **settings: Any,
) -> Iterator[tuple[ParallelRunner, Ranks]]:
    given = {"threads": 1, "dtype": "float32", "device": "cpu"} | settings
    config = EngineConfig(model=str(model), tensor_parallel_size=size, **given)
    with (
        Ranks(size, limits=limits, module=module) as ranks,
        parallel_runner(config, lambda phase, done, total: None, ranks) as runner,
    ):
        yield runner, ranks


@contextmanager
def process_engine(model: Path, size: int, **settings: Any) -> Iterator[Engine]:
    with parallel(model, size, **settings) as (runner, _):
        yield Engine(model, runner=runner, **settings)


def wait_gone(*pids: int, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline, f"still there: {[p for p in pids if is_running(p)]}"
        time.sleep(0.02)


def ranks_of(pid: int) -> list[int]:
    """Processes of other ranks that process ``pid`` started."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            children += map(int, (task / "children").read_text().split())
    return sorted(
        child
        for child in children
        if any(word.startswith(b"--rank=") for word in command_of(child))
    )


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))
