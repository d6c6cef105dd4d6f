"""Compiles what will be measured in as many processes as the machine has cores, into triton's cache
on disk. One process alone would compile for most of a short run.

Each job calls the kernels of a row on little data. Last come whole models of one layer, which
compile what the other jobs have missed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tarfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from bench.gpu.report import Row
from bench.gpu.timing import Ceilings, Machine

# Each process has its own context on the device, which takes some hundreds of MiB.
_MOST_PROCESSES: Final = 16
_PATIENCE_SECONDS: Final = 200.0
# With as many processes as a machine with a GPU has cores.
NEEDS: Final = 75.0
# Batch sizes for which decode attention is compiled separately.
_BATCHES: Final = (1, 2, 16, 32, 64, 128, 256)


def jobs(machine: Machine) -> dict[str, Callable[[Machine], object]]:
    """Return the jobs by name."""
    from bench.gpu import parts
    from bench.gpu.checks import all_checks
    from bench.gpu.kernels import BEHIND, DECODE, PREFILL, behind, decode, prefill
    from bench.gpu.model import SHAPES

    found: dict[str, Callable[[Machine], object]] = {}
    for contexts in DECODE:
        little = replace(contexts, length=256, longest=512 if contexts.longest else 0)
        found[f"decode {contexts}"] = partial(_called, decode, little)
    for contexts in DECODE[2:4]:
        for batch in _BATCHES:
            little = replace(contexts, batch=batch, length=256, longest=0)
            found[f"decode {little}"] = partial(_called, decode, little)
    for contexts in PREFILL:
        found[f"ragged {contexts}"] = partial(_called, prefill, replace(contexts, length=256))
    found[f"ragged behind {BEHIND}"] = partial(_called, behind, replace(BEHIND, length=256))
    for name, sizes, few in parts.all_products(machine):
        measure_products = partial(parts.few_bit_products, few) if few else parts.products
        found[name] = partial(_called, measure_products, *sizes)
    for name, kind in parts.KINDS.items():
        found[f"sampling {name}"] = partial(_called, parts.sampling, 16, kind, 4.0)
    for measure in (parts.norm, parts.gate, parts.rope):
        for rows in (1, 256):
            found[f"{measure.__name__} {rows}"] = partial(_called, measure, rows)
    large = not machine.dry
    for number, (name, _) in enumerate(all_checks(torch.device("cpu"), large=large)):
        found[name] = partial(_checked, number)
    for model in SHAPES:
        found[f"engine {model}"] = partial(_one_layer, model)
    for bits in ("int4", "int8", "fp8"):
        found[f"engine llama-8b {bits}"] = partial(_one_layer, "llama-8b", quantization=bits)
    return found


def _called(measure: Callable[..., object], *arguments: Any, machine: Machine) -> None:
    measure(*arguments, machine)


def _checked(number: int, machine: Machine) -> None:
    from bench.gpu.checks import all_checks

    _, check = all_checks(machine.device, large=not machine.dry)[number]
    with contextlib.suppress(AssertionError):  # what is wrong shows in the check's own row
        check()


def _one_layer(model: str, machine: Machine, **settings: Any) -> None:
    from bench.gpu import engine
    from bench.gpu.company import Chunk
    from bench.gpu.model import load, shape_of

    shape = shape_of(model, machine) | {"num_hidden_layers": 1}
    blocks = 96 if machine.dry else 2048
    subject, _ = load(shape, machine, num_kv_blocks=blocks, max_model_len=256, **settings)
    bench = engine.Bench(subject, machine)
    company = bench.company(4, 100, chunk=Chunk(12))
    company.ahead(2)
    company.leave()
    for kind in engine.SPECIAL:
        engine.special(bench, 3, 40, kind)


def run_job(name: str, device: str, dry: bool) -> float:
    """Run a job in this process. Return the seconds that it took."""
    machine = Machine(torch.device(device), Ceilings(1e12, 1e15), dry)
    begin = time.monotonic()
    jobs(machine)[name](machine=machine)  # type: ignore[call-arg]
    return time.monotonic() - begin


def compile_all(machine: Machine, names: list[str] | None = None) -> Row:
    """Run the jobs. What fails, or takes too long, is reported and compiled later, where it is
    used."""
    names = list(jobs(machine)) if names is None else names
    processes = min(_MOST_PROCESSES, os.cpu_count() or 1, len(names))
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context)
    begun = {pool.submit(run_job, name, machine.device.type, machine.dry): name for name in names}
    done, late = wait(begun, timeout=_PATIENCE_SECONDS)
    workers = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    if late:
        for worker in workers:
            worker.terminate()
    longest = sorted(((_seconds(each), begun[each]) for each in done), reverse=True)
    return {
        "jobs": len(names),
        "processes": processes,
        "failed": {begun[each]: _error(each) for each in done if each.exception() is not None},
        "late": [begun[each] for each in late],
        "longest_s": {name: round(seconds, 1) for seconds, name in longest[:3]},
    }


def _seconds(future: Future[float]) -> float:
    return future.result() if future.exception() is None else 0.0


def _error(future: Future[float]) -> str:
    error = future.exception()
    return f"{type(error).__name__}: {error}"[:200]


def unpack(archive: Path, directory: Path) -> None:
    """Fill triton's cache from an archive of an earlier run, if there is one."""
    if archive.is_file():
        with tarfile.open(archive) as packed:
            packed.extractall(directory, filter="data")


def pack(directory: Path, archive: Path) -> Row:
    """Write triton's cache to an archive, for the next run."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial_archive = archive.with_suffix(".partial")
    with tarfile.open(partial_archive, "w:xz", preset=1) as packed:
        if directory.is_dir():
            packed.add(directory, ".")
    partial_archive.replace(archive)
    return {"archive": str(archive), "mb": round(archive.stat().st_size / 1e6, 1)}
