"""Searches tiles for products with weights of few bits, of a layer of Llama-8B.

Kernels are compiled in other processes, without the device, and measured as they are ready. A
result that differs from that of the table's own tiles is left out.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from bench.gpu.kernels import BF16
from bench.gpu.parts import FEW_BITS, few_bit_weight, matrices
from bench.gpu.report import Report, Row
from bench.gpu.timing import Ceilings, Machine
from engine.gpu.kernels.few_bit_dots import few_bit_dots
from engine.gpu.kernels.few_bit_vectors import few_bit_vectors
from engine.gpu.kernels.few_bits import FewBitWeight
from engine.gpu.kernels.launch import (
    FEW_BIT_DOTS,
    FEW_BIT_ROW,
    DotTiles,
    VectorTiles,
    dot_tiles,
    num_sms,
    vector_tiles,
)
from engine.gpu.kernels.skinny import Norm

# What ``--quantization`` makes comes first.
_KINDS: Final = ("int4-32", "fp8", "int4")
_ROWS: Final = (1, 16, 4)
_MODEL: Final = "llama-8b"
# Turns, lanes, warps.
_VECTORS: Final = (
    *((1, 32, 4), (2, 32, 4), (4, 32, 4), (1, 64, 4), (2, 64, 4), (4, 64, 4), (4, 64, 2)),
    *((1, 128, 4), (2, 128, 4), (4, 128, 4), (2, 32, 2), (2, 64, 2), (1, 32, 2), (2, 32, 8)),
)
# Columns, warps, stages.
_DOTS: Final = ((64, 4, 3), (32, 2, 3), (32, 2, 4), (64, 4, 4), (128, 8, 3), (32, 4, 3))
_SHARES: Final = {
    "gate_up": (1, 2, 4),
    "qkv": (2, 4, 8),
    "output": (4, 8, 2),
    "down": (4, 8, 14),
}
# A larger difference between two results, of the largest one, is an error.
_TOLERANCE: Final = 0.03
# Left for the last rows.
_RESERVE_SECONDS: Final = 8.0
_SHOWN: Final = 5

Tiles = VectorTiles | DotTiles
Case = tuple[str, int, str]  # kind, rows, matrix


@dataclass
class Found:
    """``expected``: the result with the table's tiles."""

    table_us: float
    expected: Tensor
    times: dict[Tiles, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def candidates(rows: int, matrix: str) -> list[Tiles]:
    if rows == 1:
        gated = matrix == "gate_up"
        return [VectorTiles(*each) for each in _VECTORS if not gated or each[0] > 1]
    height = 8 if rows <= 8 else 16
    return [DotTiles(height, *each, shares) for each in _DOTS for shares in _SHARES[matrix]]


def table_tiles(case: Case, machine: Machine) -> Tiles:
    """Return the present entry."""
    kind, rows, name = case
    bits, group, is_float = FEW_BITS[kind]
    inputs, outputs = matrices(_MODEL, machine)[name]
    known = inputs, outputs, -bits if is_float else bits, group or inputs
    if rows == 1:
        return vector_tiles(rows, *known)
    return dot_tiles(rows, *known, num_sms(machine.device))


def cases(machine: Machine) -> Iterator[tuple[Case, Tiles]]:
    """Yield what is compiled and measured: by kinds, the table's own tiles first, and each
    matrix's most promising ones before the next ones of any."""
    names = ("down", "gate_up", "qkv", "output")
    for kind in _KINDS:
        lists = {(kind, rows, name): candidates(rows, name) for rows in _ROWS for name in names}
        for case in lists:
            yield case, table_tiles(case, machine)
        for place in range(max(map(len, lists.values()))):
            for case, tiles in lists.items():
                if place < len(tiles) and tiles[place] != table_tiles(case, machine):
                    yield case, tiles[place]


def call(
    case: Case, x: Tensor, weight: FewBitWeight, tiles: Tiles, out: Tensor
) -> Callable[[], Tensor]:
    """Return the product as a decode step launches it. ``out``: the residual of some."""
    _, rows, name = case
    if rows > 1:
        assert not isinstance(tiles, VectorTiles)
        return partial(few_bit_dots, x, weight, tiles=tiles)
    options: dict[str, Any] = {"tiles": tiles}
    if name in ("qkv", "gate_up"):
        options["norm"] = Norm(torch.ones(x.shape[1], device=x.device, dtype=BF16), 1e-5)
    else:
        options["residual"] = out
    if name == "gate_up":
        options["activation"] = "silu"
    return partial(few_bit_vectors, x, weight, **options)


def _inputs(case: Case, machine: Machine) -> tuple[Tensor, FewBitWeight, Tensor]:
    kind, rows, name = case
    inputs, outputs = matrices(_MODEL, machine)[name]
    x = torch.randn(rows, inputs, device=machine.device, dtype=BF16)
    residual = torch.zeros(rows, outputs, device=machine.device, dtype=BF16)
    return x, few_bit_weight(kind, inputs, outputs, machine), residual


def compile_one(case: Case, tiles: Tiles, *, dry: bool) -> None:
    """Compile into triton's cache without launching; in a separate process."""
    machine = Machine(torch.device("cpu"), Ceilings(1e12, 1e15), dry)
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, warmup: bool, **kwargs: Any) -> Any:
        return run(self, *args, warmup=True, **kwargs)

    JITFunction.run = compile_only
    try:
        x, weight, residual = _inputs(case, machine)
        call(case, x, weight, tiles, residual)()
    finally:
        JITFunction.run = run


class Search:
    def __init__(self, report: Report, machine: Machine) -> None:
        self.report, self.machine = report, machine
        self.found: dict[Case, Found] = {}
        self.weights: dict[tuple[str, str], list[FewBitWeight]] = {}

    def calls(self, case: Case, tiles: Tiles) -> list[Callable[[], Tensor]]:
        """Return the same products with each of the weights. Inputs are always the same."""
        kind, _, name = case
        torch.manual_seed(1)
        x, weight, residual = _inputs(case, self.machine)
        if (kind, name) not in self.weights:
            count = self.machine.copies(weight.num_bytes)
            others = [_inputs(case, self.machine)[1] for _ in range(count - 1)]
            self.weights[kind, name] = [weight, *others]
        return [call(case, x, each, tiles, residual) for each in self.weights[kind, name]]

    def measure(self, case: Case, tiles: Tiles) -> tuple[float, Tensor]:
        """Return the microseconds, and the first result."""
        calls = self.calls(case, tiles)
        result = calls[0]().float()
        return self.machine.seconds(calls, rounds=7) * 1e6, result

    def add(self, case: Case, tiles: Tiles) -> None:
        if case not in self.found:
            taken, expected = self.measure(case, table_tiles(case, self.machine))
            self.found[case] = Found(taken, expected)
        found = self.found[case]
        try:
            taken, result = self.measure(case, tiles)
        except OutOfResources:
            return
        difference = float((result - found.expected).abs().max())
        if not difference <= _TOLERANCE * float(found.expected.abs().max()):
            found.wrong.append(str(tiles))
            self.show(case)
            return
        is_best = taken < min(found.times.values(), default=found.table_us)
        found.times[tiles] = round(taken, 2)
        print(f"  {taken:8.2f} us  {case}  {tiles}", flush=True)
        if is_best:
            self.show(case)

    def show(self, case: Case) -> None:
        found = self.found[case]
        size = self.weights[case[0], case[2]][0].num_bytes
        best = sorted((us, str(tiles)) for tiles, us in found.times.items())[:_SHOWN]
        row: Row = {
            "row": f"tune few_bits {case[0]} {case[1]} {case[2]}",
            "table_us": round(found.table_us, 2),
            "floor_us": round(self.machine.ceilings.floor(moved=size) * 1e6, 2),
            "best": best,
            "tried": len(found.times),
            "wrong": found.wrong,
        }
        self.report.facts["tiles"] = self.chosen()
        self.report.put(row)

    def chosen(self) -> Row:
        """Return the best entries, for ``use``: of ``int4-32`` and ``fp8`` for all groups, and of
        ``int4`` for its own, as far as those have been measured."""
        chosen: Row = {"row": {}, "dots": {}}
        for kind in _KINDS:
            bits, group, is_float = FEW_BITS[kind]
            for name, sizes in matrices(_MODEL, self.machine).items():
                key = f"{-bits if is_float else bits} {sizes[0]} {sizes[1]}"
                if kind == "int4":
                    key += f" {group}"
                for rows in _ROWS:
                    found = self.found.get((kind, rows, name))
                    if found is None or not found.times:
                        continue
                    best = min(found.times, key=found.times.__getitem__)
                    if isinstance(best, DotTiles):
                        chosen["dots"][f"{best.rows} {key}"] = asdict(best)
                    else:
                        chosen["row"][key] = asdict(best)
        return chosen


def tune_few_bits(report: Report, machine: Machine) -> None:
    """Try all candidates that are ready before the report's time ends."""
    search = Search(report, machine)
    work = list(cases(machine))[:: 40 if machine.dry else 1]
    if machine.dry:  # the interpreter compiles nothing
        for case, tiles in work:
            search.add(case, tiles)
    else:
        _in_parallel(search, work)
    for case in search.found:
        search.show(case)


def _in_parallel(search: Search, work: list[tuple[Case, Tiles]]) -> None:
    context = multiprocessing.get_context("spawn")
    processes = max(1, min(16, os.cpu_count() or 1) - 1)
    pool = ProcessPoolExecutor(processes, mp_context=context)
    begun = {pool.submit(compile_one, *each, dry=False): each for each in work}
    until = min(search.report.until - _RESERVE_SECONDS, time.monotonic() + 3600)
    failed = 0
    try:
        for each in as_completed(begun, timeout=max(1.0, until - time.monotonic())):
            if each.exception() is None:
                search.add(*begun[each])
            else:
                failed += 1
                if failed <= _SHOWN:
                    print(f"  {begun[each]}: {each.exception()}"[:400], flush=True)
            if time.monotonic() > until:
                raise TimeoutError
    except TimeoutError:
        print("  no time left for the other candidates", flush=True)
    search.report.facts["not_compiled"] = failed
    workers = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()


def use(path: Path) -> None:
    """Fill the tables from what a search has written."""
    tiles = json.loads(path.read_text())["tiles"]
    for key, entry in tiles["row"].items():
        FEW_BIT_ROW[tuple(map(int, key.split()))] = VectorTiles(**entry)
    for key, entry in tiles["dots"].items():
        FEW_BIT_DOTS[tuple(map(int, key.split()))] = DotTiles(**entry)
