"""Measures how much a long prompt slows the streams that run at the same time.

    python -m bench.interference                     # 8 streams, a prompt of 16k tokens
    python -m bench.interference --shapes 13m --prompt 8192

Streams decode; then a prompt arrives, and they continue while it is prefilled. Times per output
token (all streams, milliseconds) are compared: without the prompt, for equally long periods before
it came and after it was finished and removed, because contexts grow meanwhile; and from its arrival
to its first token. Once with the pacing of ``--max-decode-slowdown``, and once without, when only
the token budget bounds a step. Random weights, the engine core in this process.
"""

from __future__ import annotations

import argparse
import math
import struct
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from bench.report import print_table, write_result
from bench.shapes import save_shape
from engine.config import EngineConfig
from engine.loop.core import EngineCore
from engine.messages import Generate, SamplingParams, Submit
from engine.run.assembly import load_model_runner
from engine.run.model_runner import ModelRunner

CONNECTION = 0
STREAM_PROMPT = 64


@dataclass(frozen=True)
class Row:
    shape: str
    threads: int
    dtype: str
    prompt_tokens: int
    slowdown: float | None
    p50_without: float
    p99_without: float
    p50_with: float
    p99_with: float
    ratio_of_p99: float
    steps: int
    ttft_seconds: float


class Streams:
    def __init__(self, runner: ModelRunner, streams: int, slowdown: float | None) -> None:
        self._core = EngineCore(
            runner,
            max_num_seqs=streams + 1,
            max_num_batched_tokens=2048,
            enable_prefix_caching=False,
            max_decode_slowdown=slowdown,
        )
        self._core.connect(CONNECTION)
        self._times: dict[int, list[float]] = {}
        self.steps = 0
        for handle in range(streams):
            self.add(handle, STREAM_PROMPT)

    def add(self, handle: int, prompt_tokens: int) -> None:
        prompt = torch.randint(3, 1000, (prompt_tokens,)).tolist()
        params = SamplingParams(max_tokens=1 << 20, temperature=0.0, ignore_eos=True)
        submit = Submit(
            handle=handle,
            request_id="bench",
            prompt_token_ids=prompt,
            task=Generate(params),
            arrival_time=time.monotonic(),
        )
        self._core.add(CONNECTION, submit)

    def step(self) -> None:
        output = self._core.step()[CONNECTION]
        now = time.perf_counter()
        self.steps += 1
        for handle in struct.unpack(f"<{len(output.handles) // 8}q", output.handles):
            self._times.setdefault(handle, []).append(now)

    def has_begun(self, handle: int) -> bool:
        return handle in self._times

    def drop(self, handle: int) -> None:
        self._core.abort(CONNECTION, [handle])

    def gaps(self, streams: int, since: float, until: float = math.inf) -> list[float]:
        """Return the milliseconds between tokens that came after ``since`` and before
        ``until``."""
        return [
            (after - before) * 1e3
            for handle in range(streams)
            for before, after in zip(self._times[handle], self._times[handle][1:], strict=False)
            if before >= since and after <= until
        ]

    def close(self) -> None:
        self._core.abort_all()


def measure(shape: str, threads: int, slowdown: float | None, options: argparse.Namespace) -> Row:
    with tempfile.TemporaryDirectory() as directory:
        save_shape(shape, Path(directory), max_positions=options.prompt + 4096)
        runner = load_model_runner(
            EngineConfig(
                model=directory,
                load_format="dummy",
                dtype=options.dtype,
                device="cpu",
                threads=threads,
                max_num_seqs=options.streams + 1,
                kv_cache_memory=8 << 30,
                async_scheduling=False,
            ),
            lambda *_: None,
        )
    streams = Streams(runner, options.streams, slowdown)
    while not all(streams.has_begun(handle) for handle in range(options.streams)):
        streams.step()
    begin = time.perf_counter()
    while time.perf_counter() - begin < options.seconds:
        streams.step()
    arrival, before = time.perf_counter(), streams.steps
    streams.add(options.streams, options.prompt)
    while not streams.has_begun(options.streams):
        streams.step()
    left, steps = time.perf_counter(), streams.steps - before
    streams.drop(options.streams)
    while time.perf_counter() - left < options.seconds:
        streams.step()
    ttft = left - arrival
    without = streams.gaps(options.streams, begin, arrival)
    without += streams.gaps(options.streams, left)
    beside = streams.gaps(options.streams, arrival, left)
    streams.close()
    (p50_without, p99_without), (p50_with, p99_with) = (
        np.percentile(gaps, (50, 99)).tolist() for gaps in (without, beside)
    )
    return Row(
        shape,
        threads,
        options.dtype,
        options.prompt,
        slowdown,
        p50_without,
        p99_without,
        p50_with,
        p99_with,
        p99_with / p99_without,
        steps,
        ttft,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=["13m"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=16_384, help="tokens")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--name", default="interference", help="of the file in bench/results")
    parser.add_argument("--seconds", type=float, default=10, help="of streams alone, before")
    options = parser.parse_args()
    default = EngineConfig(model="").max_decode_slowdown
    rows = [
        measure(shape, threads, slowdown, options)
        for shape in options.shapes
        for threads in options.threads
        for slowdown in (default, None)
    ]
    print_table([asdict(row) for row in rows])
    print(
        write_result(
            options.name,
            [asdict(row) for row in rows],
            streams=options.streams,
        )
    )


if __name__ == "__main__":
    main()
