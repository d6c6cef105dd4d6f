"""Checks the GPU path for correctness and measures it against the machine's limits.

    python -m bench.gpu                        # everything, in the order of its worth
    python -m bench.gpu --quick                # the first rows of each kind
    python -m bench.gpu --only decode steps    # rows whose names contain one of these
    python -m bench.gpu --tune ragged          # better entries for the table of tile sizes
    python -m bench.gpu --dry                  # every row with tiny sizes, without a GPU
    python -m bench.gpu --interpret            # correctness alone, without a GPU

Needs no HTTP packages. README.md in this folder lists the requirements.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from bench.gpu.report import Report
    from bench.gpu.timing import Machine

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "bench" / "results" / "gpu.json"
COMPILED = ROOT / "build" / "triton-cache"
ARCHIVE = "triton-cache.tar.xz"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the first rows of each kind")
    parser.add_argument("--only", nargs="+", default=[], help="parts of row names")
    parser.add_argument("--skip-checks", action="store_true", help="no correctness rows")
    parser.add_argument(
        "--tune",
        choices=["decode", "ragged", "skinny", "few_bits"],
        help="search the table instead",
    )
    parser.add_argument("--tiles", type=Path, help="use what --tune few_bits has written")
    parser.add_argument(
        "--compile", nargs="+", default=[], help="parts of names of what is compiled ahead"
    )
    parser.add_argument("--head-dims", nargs="+", type=int, default=[128])
    parser.add_argument("--dry", action="store_true", help="all rows, tiny, without a GPU")
    parser.add_argument("--interpret", action="store_true", help="correctness, without a GPU")
    parser.add_argument("--output", type=Path, default=RESULT, help="where the rows are written")
    parser.add_argument(
        "--seconds", type=float, default=560, help="rows that would end later are left out"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--resume", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--cache", type=Path, help=f"an earlier run's {ARCHIVE}: what triton compiled then"
    )
    return parser.parse_args()


def main() -> int:
    options = _options()
    if options.child or options.interpret or options.tune:
        return _run(options)
    return _supervise(options)


def _supervise(options: argparse.Namespace) -> int:
    """Measure in other processes, none of which is left when this one is terminated."""
    from bench.gpu.report import Report
    from bench.gpu.supervised import supervise

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))

    def command(seconds: float, is_resumed: bool) -> list[str]:
        again = ["--resume"] if is_resumed else []
        own = ["--child", *again, f"--seconds={seconds}"]
        return [sys.executable, "-m", "bench.gpu", *sys.argv[1:], *own]

    def add_error(row: str, why: str) -> None:
        report = Report(options.output, "", [])
        report.resume()
        report.put({"row": row, "error": why})

    return supervise(command, options.output, time.monotonic() + options.seconds, add_error)


def _run(options: argparse.Namespace) -> int:
    until = time.monotonic() + options.seconds
    if options.interpret or options.dry:
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    os.environ.setdefault("TRITON_CACHE_DIR", str(COMPILED))
    import torch

    from bench.gpu import compile_ahead
    from bench.gpu.report import Report
    from bench.gpu.timing import Ceilings, Machine, measure_ceilings
    from engine.device.device import answers

    if options.interpret:
        report = Report(options.output, "interpreter", options.only)
        _check(report, torch.device("cpu"), large=False)
        return 1 if report.failed else 0
    if not (options.dry or torch.cuda.is_available()):
        print("bench.gpu: torch finds no CUDA device; --dry runs every row without one")
        return 2
    device = torch.device("cpu" if options.dry else "cuda")
    name = "dry run (times mean nothing)" if options.dry else torch.cuda.get_device_name()
    report = Report(options.output, name, options.only, until)
    if options.resume:
        report.resume()
    if options.dry:
        report.patience = 10  # the interpreter's rows are small, but other work may slow them down
    else:
        report.is_usable = partial(answers, device)
    report.facts["dry"] = options.dry
    report.write()
    machine = Machine(device, Ceilings(1e12, 1e15), options.dry)
    if options.tiles is not None:
        from bench.gpu import tune_few_bits

        tune_few_bits.use(options.tiles)
    if options.cache is not None:
        compile_ahead.unpack(options.cache, Path(os.environ["TRITON_CACHE_DIR"]))
    if not options.tune and report.found("compile ahead") is None:
        _compile(report, machine, options)
    machine = Machine(device, measure_ceilings(device), options.dry)
    report.facts["ceilings"] = asdict(machine.ceilings)
    _measure(report, machine, options)
    return 1 if report.failed else 0


def _compile(report: Report, machine: Machine, options: argparse.Namespace) -> None:
    from bench.gpu import compile_ahead

    names = ["norm 1", "gate 1"] if machine.dry else None
    if options.compile and not machine.dry:
        known = compile_ahead.jobs(machine)
        names = [name for name in known if any(part in name for part in options.compile)]
    compiling = partial(compile_ahead.compile_all, machine, names)
    report.add("compile ahead", compiling, always=True, needs=compile_ahead.NEEDS)
    _pack(report, machine, options)


def _pack(report: Report, machine: Machine, options: argparse.Namespace) -> None:
    from bench.gpu import compile_ahead

    if options.compile:
        return  # a part of all that a next call would need
    directory = Path(os.environ["TRITON_CACHE_DIR"])
    archive = options.output.parent / ARCHIVE
    report.add("pack cache", partial(compile_ahead.pack, directory, archive), always=True, needs=20)


def _measure(report: Report, machine: Machine, options: argparse.Namespace) -> None:
    """What says most comes first, as the time may end."""
    from bench.gpu import device, engine, kernels, over_http, parts, ranks, tune, tune_few_bits
    from bench.gpu.checks import all_checks

    if machine.device.type == "cuda":
        report.facts["clocks"] = report.add("clocks", device.clocks, always=True) or {}
    if options.tune == "few_bits":
        tune_few_bits.tune_few_bits(report, machine)
        return
    if options.tune:
        tune.tune(report, machine, options.tune, options.head_dims)
        return
    checks = all_checks(machine.device, large=not machine.dry)
    checks = [] if options.skip_checks else checks[: 4 if options.quick else None]
    for name, check in checks[:3]:
        report.add(name, check)
    kernels.first_rows(report, machine)
    for loaded in engine.MAIN:
        engine.measure(report, machine, loaded, quick=options.quick)
    if not options.quick:
        parts.measure(report, machine)
        kernels.other_rows(report, machine)
        others = [] if machine.dry else [engine.WITH_CUDNN]
        if not machine.dry and importlib.util.find_spec("flashinfer") is not None:
            others.append(engine.WITH_FLASHINFER)
        for loaded in (*others, *engine.VARIANTS):
            engine.measure(report, machine, loaded)
        over_http.measure(report, machine)
        ranks.measure(report, machine)
    report.add("resources of kernels", device.resources, always=True)
    for name, check in checks[3:]:
        report.add(name, check)
    _pack(report, machine, options)


def _check(report: Report, device: torch.device, *, large: bool) -> None:
    from bench.gpu.checks import all_checks

    for name, check in all_checks(device, large=large):
        report.add(name, check)


if __name__ == "__main__":
    sys.exit(main())
