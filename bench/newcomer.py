"""Measures how long a short request waits while long prompts are computed.

    python -m bench.newcomer                     # pocket, one thread, prompts of 3,500 tokens
    python -m bench.newcomer --one-key           # A and B have the same key, or none

Key A sends long prompts; 50 ms later key B sends one of 10 tokens. In seconds: from B's arrival to
its first token, also where A sends nothing (``newcomer_alone``); where B never comes, the longest
step, and the time from A's arrival to the first token of its last prompt, with the prompt tokens
per second (``pace``). By themselves, and with streams of a third key. The engine core in this
process, as the engine's loop runs it: what has arrived during a step is added before the next. With
one thread, seconds are CPU time, in which a busy machine changes little.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.report import print_table, write_result
from bench.shapes import SHAPES, save_shape
from engine.config import EngineConfig
from engine.loop.core import EngineCore
from engine.messages import Generate, SamplingParams, Submit
from engine.run.assembly import load_model_runner
from engine.run.model_runner import ModelRunner
from pocket import MODEL_DIR

CONNECTION = 0
LATER_SECONDS = 0.05
SHORT = 10


@dataclass(frozen=True)
class Case:
    prompts: int
    streams: int
    logprobs: bool


@dataclass(frozen=True)
class Row:
    model: str
    threads: int
    prompts: int
    streams: int
    logprobs: bool
    newcomer_alone: float
    newcomer_median: float
    newcomer_worst: float
    longest_step: float
    last_prompt: float
    pace: float


class Engine:
    """A core, when each sequence had its first token, and how long steps took."""

    def __init__(self, runner: ModelRunner, budget: int | None, clock: Callable[[], float]) -> None:
        config = EngineConfig(model="")
        self.clock = clock
        self.core = EngineCore(
            runner,
            max_num_seqs=64,
            max_num_batched_tokens=budget or config.sizes().max_num_batched_tokens,
            enable_prefix_caching=False,
            max_decode_slowdown=config.max_decode_slowdown,
            clock=clock,
        )
        self.core.connect(CONNECTION)
        self.began: dict[int, float] = {}
        self.steps: list[float] = []
        self._handles = itertools.count()
        self._random = random.Random(1)

    def add(self, tenant: str, prompt_tokens: int, output: int, logprobs: bool = False) -> int:
        handle = next(self._handles)
        params = SamplingParams(
            max_tokens=output,
            temperature=0.0,
            ignore_eos=True,
            prompt_logprobs=0 if logprobs else None,
        )
        submit = Submit(
            handle=handle,
            request_id=f"{tenant}{handle}",
            prompt_token_ids=[self._random.randrange(3, 1000) for _ in range(prompt_tokens)],
            task=Generate(params),
            arrival_time=self.clock(),
            tenant=tenant,
        )
        self.core.add(CONNECTION, submit)
        return handle

    def step(self) -> None:
        before = self.clock()
        output = self.core.step()[CONNECTION]
        now = self.clock()
        self.steps.append(now - before)
        for handle in struct.unpack(f"<{len(output.handles) // 8}q", output.handles):
            self.began.setdefault(handle, now)

    def until(self, *handles: int) -> None:
        while not all(handle in self.began for handle in handles):
            self.step()

    def run_streams(self, count: int) -> None:
        """End all sequences; start streams that run alone for a while."""
        self.core.abort_all()
        while self.core.has_work:
            self.step()
        if count:
            self.until(*(self.add("c", 64, 3000) for _ in range(count)))
            for _ in range(100):
                self.step()


@dataclass(frozen=True)
class Waits:
    """Seconds to the first token of the newcomer or, without it, of the last long prompt."""

    first_token: float
    longest_step: float


def once(engine: Engine, case: Case, options: argparse.Namespace, *, newcomer: bool) -> Waits:
    engine.run_streams(case.streams)
    engine.steps.clear()
    arrival = engine.clock()
    long = [engine.add("a", options.tokens, 1, case.logprobs) for _ in range(case.prompts)]
    short: list[int] = []
    later = arrival + (LATER_SECONDS if long else 0.0)
    while newcomer and not short:
        if long:
            engine.step()
        if engine.clock() >= later:
            short.append(engine.add("a" if options.one_key else "b", SHORT, 8))
    awaited = short or long
    engine.until(*awaited)
    first_token = max(engine.began[one] for one in awaited)
    return Waits(first_token - (later if short else arrival), max(engine.steps))


@contextmanager
def loaded(shape: str, threads: int, options: argparse.Namespace) -> Iterator[ModelRunner]:
    with tempfile.TemporaryDirectory() as directory:
        trained = shape == "pocket"
        if not trained:
            save_shape(shape, Path(directory), max_positions=8192)
        config = EngineConfig(
            model=str(MODEL_DIR) if trained else directory,
            load_format="auto" if trained else "dummy",
            dtype=options.dtype,
            device="cpu",
            threads=threads,
            kv_cache_memory=2 << 30,
        )
        yield load_model_runner(config, lambda *_: None)


def measure(options: argparse.Namespace, shape: str, threads: int) -> list[Row]:
    clock = time.process_time if threads == 1 else time.perf_counter
    rows = []
    with loaded(shape, threads, options) as runner:
        for streams, prompts, logprobs in itertools.product(
            options.streams, options.prompts, (False, True)
        ):
            case = Case(prompts, streams, logprobs)
            engine = Engine(runner, options.budget, clock)
            once(engine, Case(1, 0, logprobs), options, newcomer=False)  # it learns its pace
            none, without, waits = (
                [once(engine, which, options, newcomer=comes) for _ in range(options.rounds)]
                for which, comes in (
                    (Case(0, streams, logprobs), True),
                    (case, False),
                    (case, True),
                )
            )
            engine.core.abort_all()
            last = statistics.median(one.first_token for one in without)
            rows.append(
                Row(
                    shape,
                    threads,
                    prompts,
                    streams,
                    logprobs,
                    statistics.median(one.first_token for one in none),
                    statistics.median(one.first_token for one in waits),
                    max(one.first_token for one in waits),
                    statistics.median(one.longest_step for one in without),
                    last,
                    prompts * options.tokens / last,
                )
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=["pocket"], choices=list(SHAPES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--tokens", type=int, default=3500, help="of each long prompt")
    parser.add_argument("--prompts", nargs="+", type=int, default=[1, 4], help="long ones")
    parser.add_argument("--one-key", action="store_true", help="for A and B")
    parser.add_argument("--streams", nargs="+", type=int, default=[0, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=int, help="--max-num-batched-tokens")
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    parser.add_argument("--name", default="newcomer", help="of the file in bench/results")
    options = parser.parse_args()
    rows = [
        row
        for shape in options.shapes
        for threads in options.threads
        for row in measure(options, shape, threads)
    ]
    print_table([asdict(row) for row in rows])
    sent = {"tokens": options.tokens, "one_key": options.one_key}
    print(write_result(options.name, [asdict(row) for row in rows], **sent))


if __name__ == "__main__":
    main()
