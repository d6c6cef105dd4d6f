"""Measures how long a GGUF file takes to load on a CPU, compared with reading its bytes alone.

    python -m bench.gguf_loading                          # 1 GiB of Q4_K_M and of Q8_0, 2 threads
    python -m bench.gguf_loading --kinds q8_0 --gib 4 --threads 1 2 4
    python -m bench.gguf_loading --file MODEL.gguf

The file has random blocks in the shape of Llama 3.2 1B, with as many layers as make up its size,
and 128,256 tokens in its header. Columns, in seconds, medians over rounds that alternate:

- ``load``: from the header until the decoder has its weights packed, in a process that has imported
  everything and compiled the C code; ``cpu`` is its processor time.
- ``read``: as many threads read the file's bytes into new memory, which is what loading cannot
  avoid; ``read again``: into one small buffer each, the least that a program can do with a file.

Cold: the file's pages were dropped from the page cache first (``posix_fadvise``). The ratios are
medians of each round's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import gguf
import numpy as np
import torch

from bench.gguf_directory import write_gguf_directory
from bench.loading import drop_from_cache, read_raw
from bench.report import print_table, write_result
from engine.architecture.config import load_model_config
from engine.cpu.library import library
from engine.gguf.types import NUMBERS, TYPES
from engine.run.loader import DecoderOptions, LoadSettings, load_decoder

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 2048, 8192, 32, 8, 64, 128256
POSITIONS = 4096
# By type: where its blocks have float16 numbers, which must be finite.
HALVES = {"Q8_0": (0,), "Q4_K": (0, 2), "Q6_K": (208,)}
SCALE = np.float16(0.001)

Kinds = Callable[[str, int, int], str]
"""The type of a matrix, by its name, layer and the number of layers."""


def all_q8_0(name: str, layer: int, layers: int) -> str:
    return "Q8_0"


def q4_k_m(name: str, layer: int, layers: int) -> str:
    """As llama.cpp chooses them."""
    if name == "token_embd":
        return "Q6_K"
    eighth = layers // 8
    is_more = layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2
    return "Q6_K" if is_more and name in ("attn_v", "ffn_down") else "Q4_K"


KINDS: dict[str, Kinds] = {"q4_k_m": q4_k_m, "q8_0": all_q8_0}
MATRICES = {
    "attn_q": (HEADS * HEAD_DIM, HIDDEN),
    "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_output": (HIDDEN, HEADS * HEAD_DIM),
    "ffn_gate": (INNER, HIDDEN),
    "ffn_up": (INNER, HIDDEN),
    "ffn_down": (HIDDEN, INNER),
}


def matrix_bytes(shape: tuple[int, int], kind: str) -> int:
    each = TYPES[NUMBERS[kind]]
    return shape[0] * shape[1] // each.block * each.num_bytes


def layers_for(kinds: Kinds, gib: float) -> int:
    """Return how many layers make up a file of this size."""
    left = gib * 2**30 - matrix_bytes((VOCAB, HIDDEN), kinds("token_embd", 0, 1))
    for layers in range(1, 1000):
        sizes = (
            matrix_bytes(shape, kinds(name, layer, layers))
            for layer in range(layers)
            for name, shape in MATRICES.items()
        )
        if sum(sizes) >= left:
            return layers
    raise SystemExit("--gib is too large")


def random_blocks(chance: np.random.Generator, shape: tuple[int, int], kind: str) -> np.ndarray:
    size = TYPES[NUMBERS[kind]].num_bytes
    raw = np.frombuffer(chance.bytes(matrix_bytes(shape, kind)), np.uint8).reshape(-1, size).copy()
    for at in HALVES[kind]:
        raw[:, at : at + 2] = SCALE.reshape(1).view(np.uint8)
    return raw.reshape(shape[0], -1)


def write_model(path: Path, kinds: Kinds, gib: float) -> None:
    layers = layers_for(kinds, gib)
    chance = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token {number}" for number in range(VOCAB)])
    writer.add_token_merges([f"token {number}" for number in range(2 * VOCAB)])

    def add(name: str, shape: tuple[int, int], kind: str) -> None:
        raw = random_blocks(chance, shape, kind)
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=gguf.GGMLQuantizationType[kind])

    def add_norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(HIDDEN, np.float32))

    add("token_embd", (VOCAB, HIDDEN), kinds("token_embd", 0, layers))
    add_norm("output_norm")
    for layer in range(layers):
        for name, shape in MATRICES.items():
            add(f"blk.{layer}.{name}", shape, kinds(name, layer, layers))
        for name in ("attn_norm", "ffn_norm"):
            add_norm(f"blk.{layer}.{name}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with path.open("rb") as file:
        os.fsync(file.fileno())  # writing to the disk would slow down what is measured first


@contextmanager
def model_directory(path: Path) -> Iterator[Path]:
    """Yield one without a tokenizer, which the engine does not need."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_gguf_directory(path, directory)
        yield directory


def load(directory: Path) -> None:
    settings = LoadSettings(
        directory, torch.float32, torch.device("cpu"), lambda phase, done, total: None
    )
    with torch.inference_mode():
        load_decoder(
            load_model_config(directory),
            settings,
            DecoderOptions(max_positions=POSITIONS, library=library()),
        )


@dataclass(frozen=True, slots=True)
class Row:
    file: str
    gib: float
    pages: str
    threads: int
    load: float
    cpu: float
    read: float
    read_again: float
    load_to_read: float
    load_to_read_again: float


def measure(path: Path, directory: Path, pages: str, threads: int, rounds: int) -> Row:
    ways = {
        "load": partial(load, directory),
        "read": partial(read_raw, path, threads, fresh=True),
        "read again": partial(read_raw, path, threads, fresh=False),
    }
    torch.set_num_threads(threads)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    cpu = []
    for _ in range(rounds):
        for name, way in ways.items():
            if pages == "cold":
                drop_from_cache(path)
            begin, cpu_begin = time.perf_counter(), time.process_time()
            way()
            seconds[name].append(time.perf_counter() - begin)
            if name == "load":
                cpu.append(time.process_time() - cpu_begin)

    def ratio(name: str) -> float:
        pairs = zip(seconds["load"], seconds[name], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    return Row(
        path.name,
        path.stat().st_size / 2**30,
        pages,
        threads,
        statistics.median(seconds["load"]),
        statistics.median(cpu),
        statistics.median(seconds["read"]),
        statistics.median(seconds["read again"]),
        ratio("read"),
        ratio("read again"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--gib", type=float, default=1.0, help="size of the file")
    parser.add_argument("--file", type=Path, help="an existing file instead")
    parser.add_argument("--threads", nargs="+", type=int, default=[2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write it; default: temporary files")
    options = parser.parse_args()
    library()
    rows = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        paths = [options.file] if options.file else []
        for kind in () if options.file else options.kinds:
            paths.append(Path(name) / f"{kind}.gguf")
            write_model(paths[-1], KINDS[kind], options.gib)
        for path in paths:
            with model_directory(path) as directory:
                load(directory)  # what only a first load does
                rows += [
                    measure(path, directory, pages, threads, options.rounds)
                    for pages in ("warm", "cold")
                    for threads in options.threads
                ]
    table = [asdict(row) for row in rows]
    print_table(table)
    for row in rows:
        print(
            f"{row.file}, {row.pages}, {row.threads} threads: loaded in {row.load:.2f} s, "
            f"{row.load_to_read:.2f} times the {row.read:.2f} s of reading it"
        )
    cores = len(os.sched_getaffinity(0))
    print(write_result("gguf_loading", table, rounds=options.rounds, cores=cores))


if __name__ == "__main__":
    main()
