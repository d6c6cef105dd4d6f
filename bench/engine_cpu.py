"""Quire's engine compared with transformers on this machine's CPU, in one interleaved run.

    python -m bench.engine_cpu                        # every row
    python -m bench.engine_cpu --shapes pocket --batches 16 --threads 1

Both sides run the same shape with random weights in float32, prompts of the same lengths and a
fixed number of greedy tokens. Quire runs as the whole engine core (scheduler, block tables,
sampler), not only the forward pass. Peers: ``generate`` and, unless ``--no-cb``, continuous
batching (``generate_batch``). Rounds alternate between the engines, so that other load on the
machine affects them equally: read the ratios (medians over rounds), not the absolute figures (best
rounds). The ratio in brackets is of tokens per second of CPU time, which other load distorts least.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, Qwen3ForCausalLM
from transformers import logging as transformers_logging

from bench.report import write_result
from bench.shapes import save_shape, shape_config
from engine.config import EngineConfig
from engine.loop.core import EngineCore
from engine.messages import Generate, SamplingParams, Submit
from engine.run.assembly import load_model_runner

COMPARED = ("pocket", "234m")
MAX_POSITIONS = 2048
CONNECTION = 0

Prompts = list[list[int]]


@dataclass
class Rates:
    """Output tokens per second of wall time and per second of CPU time, one entry per round, for
    whole requests from submission to the last token."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def measure(self, run: Callable[[Prompts, int], int], prompts: Prompts, n: int) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        tokens = run(prompts, n)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        if tokens != n * len(prompts):
            raise RuntimeError(f"{tokens} tokens came, {n * len(prompts)} were asked for")
        self.wall.append(tokens / wall)
        self.cpu.append(tokens / cpu)


@dataclass
class Row:
    shape: str
    batch: int
    threads: int
    engines: dict[str, Rates]

    def ratio(self, peer: str, kind: str) -> float:
        """Return the median over rounds of Quire's rate to the peer's in the same round."""
        ours, theirs = getattr(self.engines["quire"], kind), getattr(self.engines[peer], kind)
        return float(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)))

    def line(self) -> str:
        text = f"{self.shape:12} {self.batch:5} {self.threads:7}"
        text += f" {max(self.engines['quire'].wall):8.1f}"
        for name, rates in self.engines.items():
            if name != "quire":
                text += f" {max(rates.wall):10.1f}"
                text += f" {self.ratio(name, 'wall'):6.2f} {self.ratio(name, 'cpu'):6.2f}"
        return text


class Ours:
    def __init__(self, shape: str, threads: int, max_batch: int, directory: Path) -> None:
        save_shape(shape, directory, max_positions=MAX_POSITIONS)
        settings = EngineConfig(
            model=str(directory),
            load_format="dummy",
            dtype="float32",
            device="cpu",
            threads=threads,
            max_num_seqs=max_batch,
        )
        self._core = EngineCore(
            load_model_runner(settings, lambda phase, done, total: None),
            max_num_seqs=settings.sizes().max_num_seqs,
            max_num_batched_tokens=settings.sizes().max_num_batched_tokens,
            enable_prefix_caching=False,
        )
        self._core.connect(CONNECTION)
        self._handle = 0

    def run(self, prompts: Prompts, max_tokens: int) -> int:
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        for prompt in prompts:
            self._handle += 1
            self._core.add(
                CONNECTION,
                Submit(
                    handle=self._handle,
                    request_id="bench",
                    prompt_token_ids=prompt,
                    task=Generate(params),
                    arrival_time=time.monotonic(),
                ),
            )
        tokens = 0
        while self._core.has_work:
            tokens += len(self._core.step()[CONNECTION].token_ids) // 4
        return tokens


class Transformers:
    def __init__(self, shape: str) -> None:
        transformers_logging.set_verbosity_error()
        self._model = Qwen3ForCausalLM(shape_config(shape, MAX_POSITIONS)).eval()

    def generate(self, prompts: Prompts, max_tokens: int) -> int:
        inputs = torch.tensor(prompts)
        with torch.inference_mode():
            out = self._model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                max_new_tokens=max_tokens,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=None,
            )
        return int(out.numel()) - inputs.numel()

    def generate_batch(self, prompts: Prompts, max_tokens: int) -> int:
        out = self._model.generate_batch(
            inputs=prompts,
            generation_config=GenerationConfig(
                max_new_tokens=max_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
            ),
            continuous_batching_config=ContinuousBatchingConfig(
                num_blocks=256, max_batch_tokens=2048
            ),
            progress_bar=False,
        )
        return sum(len(output.generated_tokens) for output in out.values())


def measure(options: argparse.Namespace) -> Iterator[Row]:
    for shape, threads in itertools.product(options.shapes, options.threads):
        torch.manual_seed(0)
        peer = Transformers(shape)
        with tempfile.TemporaryDirectory() as directory:
            ours = Ours(shape, threads, max(options.batches), Path(directory))
        engines = {"quire": ours.run, "generate": peer.generate}
        if options.cb:
            engines["generate_batch"] = peer.generate_batch
        for batch in options.batches:
            row = Row(shape, batch, threads, {name: Rates() for name in engines})
            prompts = torch.randint(3, 1000, (batch, options.prompt)).tolist()
            for run in engines.values():
                run(prompts, 4)  # warm up
            for _ in range(options.rounds):
                for name, run in engines.items():
                    row.engines[name].measure(run, prompts, options.output)
            yield row


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", choices=COMPARED, default=COMPARED)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--prompt", type=int, default=128, help="tokens in")
    parser.add_argument("--output", type=int, default=64, help="tokens out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-cb", dest="cb", action="store_false")
    return parser.parse_args()


def main() -> None:
    options = _options()
    rows = []
    print(f"{options.prompt} tokens in, {options.output} out, float32; output tokens/s, end to end")
    peers = ["generate", *(["gen_batch"] if options.cb else [])]
    head = "".join(f" {name:>10}  ratio  (cpu)" for name in peers)
    print(f"shape        batch threads    quire{head}", flush=True)
    for row in measure(options):
        rows.append(row)
        print(row.line(), flush=True)
    path = write_result(
        "engine_cpu",
        [asdict(row) for row in rows],
        capability=torch.backends.cpu.get_cpu_capability(),
        prompt_tokens=options.prompt,
        output_tokens=options.output,
    )
    print(f"written to {path}")


if __name__ == "__main__":
    main()
