"""Steps of a model that several GPUs share, next to the floor of one GPU's part: with sums of few
rows through symmetric memory, and with all of them by NCCL."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Final

import torch

from bench.gpu.engine import Bench, steps
from bench.gpu.model import config_of, shape_of, subject_of
from bench.gpu.report import Report, Row
from bench.gpu.timing import Machine
from engine.ranks.ranks import Ranks
from engine.ranks.runner import parallel_runner

MODEL: Final = "llama-8b"
_STEPS: Final[dict[str, Callable[[Bench], Row]]] = {
    "batch 1 ctx 256": partial(steps, batch=1, context=256),
    "batch 64 ctx 1024": partial(steps, batch=64, context=1024),
}
_SUMS: Final = {"": True, " by NCCL alone": False}
# A rank's part is that of a smaller model, but processes must start.
_LOAD_SECONDS: Final = 60
_MOST_RANKS: Final = 8


def number_of_ranks(gpus: int) -> int:
    """Return the largest power of two of GPUs that there are, at least 2."""
    return max(2, min(_MOST_RANKS, 1 << max(0, gpus.bit_length() - 1)))


def rows(ranks: int, sums: str = "") -> dict[str, Callable[[Bench], Row]]:
    return {f"tp{ranks} {MODEL} {name}{sums}": row for name, row in _STEPS.items()}


def measure(report: Report, machine: Machine) -> None:
    gpus = torch.cuda.device_count()
    ranks = 2 if machine.dry else number_of_ranks(gpus)
    why_not = "" if machine.dry or gpus >= ranks else f"needs {ranks} GPUs, and here is {gpus}"
    for sums, symmetric_memory in _SUMS.items():
        wanted = {name: row for name, row in rows(ranks, sums).items() if report.wants(name)}
        if why_not:
            for name in wanted:
                report.add(name, dict, why_not=why_not)
        elif wanted:
            loading = shared(machine, ranks, symmetric_memory=symmetric_memory)
            _measure(report, f"load tp{ranks} {MODEL}{sums}", loading, wanted)


def _measure(
    report: Report,
    name: str,
    loading: AbstractContextManager[Bench],
    wanted: dict[str, Callable[[Bench], Row]],
) -> None:
    benches: list[Bench] = []

    def start() -> Row:
        benches.append(ends.enter_context(loading))
        return {"kv_blocks": benches[0].subject.runner.info.num_kv_blocks}

    with ExitStack() as ends:  # the ranks end before other rows begin
        report.add(name, start, always=True, needs=_LOAD_SECONDS)
        for bench in benches:
            for name_of_row, row in wanted.items():
                report.add(name_of_row, partial(row, bench))


@contextmanager
def shared(machine: Machine, ranks: int, **settings: Any) -> Iterator[Bench]:
    """Load a model that so many ranks share."""
    shape = shape_of(MODEL, machine)
    with tempfile.TemporaryDirectory() as directory:
        config = config_of(shape, machine, directory, tensor_parallel_size=ranks, **settings)
        with (
            Ranks(ranks) as others,
            parallel_runner(config, lambda phase, done, total: None, others) as runner,
        ):
            yield Bench(subject_of(shape, config, runner), machine)
