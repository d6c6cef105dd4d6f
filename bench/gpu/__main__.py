"""Checks the GPU path for correctness, then measures it against the machine's limits.

    python -m bench.gpu                        # everything, in a fixed order
    python -m bench.gpu --quick                # the first rows of each kind
    python -m bench.gpu --only decode steps    # rows whose names contain one of these
    python -m bench.gpu --tune ragged          # better entries for the table of tile sizes
    TRITON_INTERPRET=1 python -m bench.gpu --interpret   # correctness alone, without a GPU

Needs no HTTP packages. README.md in this folder lists the requirements.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from bench.gpu.report import Report

RESULT = Path(__file__).parents[1] / "results" / "gpu.json"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the first rows of each kind")
    parser.add_argument("--only", nargs="+", default=[], help="parts of row names")
    parser.add_argument("--skip-checks", action="store_true", help="no correctness rows")
    parser.add_argument("--tune", choices=["decode", "ragged"], help="search the table instead")
    parser.add_argument("--head-dims", nargs="+", type=int, default=[128])
    parser.add_argument("--interpret", action="store_true", help="correctness, without a GPU")
    parser.add_argument("--output", type=Path, default=RESULT, help="where the rows are written")
    return parser.parse_args()


def main() -> int:
    options = _options()
    if options.interpret:
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
        from bench.gpu import correctness

        report = Report(options.output, "interpreter", options.only)
        correctness.check_all(report, torch.device("cpu"), large=False)
        return 1 if report.failed else 0
    if not torch.cuda.is_available():
        print("bench.gpu: torch finds no CUDA device; --interpret checks the kernels without one")
        return 2
    return _on_device(options)


def _on_device(options: argparse.Namespace) -> int:
    from bench.gpu import correctness, engine, kernels, timing, tune

    report = Report(options.output, torch.cuda.get_device_name(), options.only)
    if not (options.skip_checks or options.tune):
        correctness.check_all(report, torch.device("cuda"), large=True)
    ceilings = timing.measure_ceilings()
    report.facts["ceilings"] = asdict(ceilings)
    print(f"copy {ceilings.bandwidth / 1e9:,.0f} GB/s, bf16 {ceilings.flops / 1e12:,.0f} TFLOP/s")
    if options.tune:
        tune.tune(report, ceilings, options.tune, options.head_dims)
        return 1 if report.failed else 0
    kernels.measure_all(report, ceilings, quick=options.quick)
    torch.cuda.empty_cache()
    engine.measure_all(report, ceilings, quick=options.quick)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
