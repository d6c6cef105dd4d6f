"""Measures how fast a checkpoint's weights are loaded, compared with reading its bytes alone.

    python -m bench.loading                     # 1 GiB in bfloat16, by one thread and by four
    python -m bench.loading --gib 8 --threads 1 2 4 8

Every row reads the same file, one tensor after the other; each is freed before the next:

- ``load_file``: safetensors' own, which maps the file; each tensor is then copied, as an engine
  that closes the file must do.
- ``ours``: the same with ``CheckpointWeights``.
- ``fresh memory``: the same number of threads read the bytes into new memory without parsing them.
- ``ours, reused`` and ``one buffer``: the previous two, into memory that was already allocated, as
  when bytes pass through pinned buffers to a GPU (without the copy to it).

Cold: the file's pages were dropped from the page cache first. A round's rows alternate; rates are
medians over rounds in GB/s of the file, ratios are relative to ``load_file`` in the same round.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bench.report import print_table, write_result
from engine.weights.file import TensorFile
from engine.weights.placing import READ_PIECE_BYTES, Target
from engine.weights.reading import ReadAhead
from engine.weights.stored import Shape, stored_tensors, whole
from engine.weights.weights import SINGLE, CheckpointWeights

# A layer of an 8B model at a smaller scale: matrices with a norm between them.
ROWS, COLUMNS = 8192, 2048
MATRIX_BYTES = ROWS * COLUMNS * 2
BLOCK = READ_PIECE_BYTES

Shapes = dict[str, Shape]


@dataclass(frozen=True, slots=True)
class Way:
    """``dtype``: of the loaded tensors. ``load`` reads the whole file."""

    name: str
    threads: int
    dtype: str
    load: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Row:
    pages: str
    way: str
    threads: int
    dtype: str
    gb_per_s: float
    to_load_file: float
    cpu_s: float


def write_checkpoint(directory: Path, gib: float) -> Shapes:
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for number in range(max(1, round(gib * 2**30 / MATRIX_BYTES))):
        matrix = torch.empty(ROWS, COLUMNS).normal_(generator=generator)
        tensors[f"layers.{number}.norm"] = torch.ones(COLUMNS, dtype=torch.bfloat16)
        tensors[f"layers.{number}.weight"] = matrix.bfloat16()
    save_file(tensors, directory / SINGLE)
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def load_ours(directory: Path, shapes: Shapes, threads: int, dtype: torch.dtype) -> None:
    with CheckpointWeights(
        directory,
        shapes,
        unused=(),
        dtype=dtype,
        device=torch.device("cpu"),
        progress=lambda done, total: None,
        readers=threads,
    ) as checkpoint:
        for name in shapes:
            checkpoint.tensor(name)


class ReusedMemory(Target):
    """Tensors of the same shape share memory."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype, torch.device("cpu"))
        self._tensors: dict[Shape, Tensor] = {}

    def empty(self, shape: Shape) -> Tensor:
        if shape not in self._tensors:
            self._tensors[shape] = super().empty(shape)
        return self._tensors[shape]


def load_reusing(directory: Path, target: ReusedMemory, threads: int) -> None:
    with closing(TensorFile(directory / SINGLE)) as file:
        wanted = [whole(stored) for stored in stored_tensors(file)]
        with closing(ReadAhead(wanted, target, readers=threads)) as reader:
            for each in wanted:
                reader.take(each)


def load_by_safetensors(directory: Path, dtype: torch.dtype) -> None:
    for tensor in load_file(directory / SINGLE).values():
        tensor.to(dtype, copy=True)


def read_raw(path: Path, threads: int, *, fresh: bool) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    offsets = itertools.count(0, MATRIX_BYTES if fresh else BLOCK)  # its next() is atomic
    size = path.stat().st_size

    def read() -> None:
        buffer = memoryview(bytearray(BLOCK))
        while (offset := next(offsets)) < size:
            if not fresh:
                os.preadv(descriptor, [buffer], offset)
                continue
            memory = torch.empty(MATRIX_BYTES, dtype=torch.uint8).numpy().data
            for first in range(0, MATRIX_BYTES, BLOCK):
                os.preadv(descriptor, [memory[first : first + BLOCK]], offset + first)

    readers = [threading.Thread(target=read) for _ in range(threads)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    os.close(descriptor)


def drop_from_cache(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def ways_of(directory: Path, shapes: Shapes, threads: list[int]) -> list[Way]:
    path = directory / SINGLE
    ways = []
    for dtype in (torch.bfloat16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        ways.append(Way("load_file", 1, name, partial(load_by_safetensors, directory, dtype)))
        for count in threads:
            load = partial(load_ours, directory, shapes, count, dtype)
            ways.append(Way("ours", count, name, load))
    reused = ReusedMemory(torch.bfloat16)
    load_reusing(directory, reused, 1)
    for count in threads:
        load = partial(load_reusing, directory, reused, count)
        ways.append(Way("ours, reused", count, "bfloat16", load))
    for count in threads:
        for name, fresh in (("fresh memory", True), ("one buffer", False)):
            ways.append(Way(name, count, "", partial(read_raw, path, count, fresh=fresh)))
    return ways


def measure(ways: list[Way], path: Path, pages: str, rounds: int) -> list[Row]:
    seconds: dict[Way, list[float]] = {way: [] for way in ways}
    cpu: dict[Way, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            if pages == "cold":
                drop_from_cache(path)
            begin, cpu_begin = time.perf_counter(), time.process_time()
            way.load()
            seconds[way].append(time.perf_counter() - begin)
            cpu[way].append(time.process_time() - cpu_begin)
    size = path.stat().st_size
    peers = {way.dtype: seconds[way] for way in ways if way.name == "load_file"}
    peers[""] = peers["bfloat16"]
    return [
        Row(
            pages,
            way.name,
            way.threads,
            way.dtype,
            size / statistics.median(seconds[way]) / 1e9,
            statistics.median(
                theirs / own for theirs, own in zip(peers[way.dtype], seconds[way], strict=True)
            ),
            statistics.median(cpu[way]),
        )
        for way in ways
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=1.0, help="size of the checkpoint")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write it; default: temporary files")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        directory = Path(name)
        shapes = write_checkpoint(directory, options.gib)
        ways = ways_of(directory, shapes, options.threads)
        rows = []
        for pages in ("warm", "cold"):
            rows += measure(ways, directory / SINGLE, pages, options.rounds)
    table = [asdict(row) for row in rows]
    print_table(table)
    cores = len(os.sched_getaffinity(0))
    facts = {"gib": options.gib, "rounds": options.rounds, "cores": cores}
    print(write_result("loading", table, **facts))


if __name__ == "__main__":
    main()
