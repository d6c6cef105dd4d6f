"""Quire's engine compared with other engines on this machine's CPU, in one interleaved run.

    make peers                         # once: the peers, in a separate environment
    python -m bench.cpu_peers          # every row
    python -m bench.cpu_peers --shapes 13m --batches 1 --threads 1 --engines quire llama.cpp-bf16

Every engine computes the same checkpoint (random bf16 weights of a Qwen3 shape) on the same prompts
with greedy sampling. Each runs in a separate process, one at a time: a round goes through all
engines and the machine's own limits, so that other load on the machine affects all of them equally.
Read the ratios (medians over rounds of Quire's rate to the peer's in the same round) and the shares
of the limits, not the absolute figures (medians over rounds). ``agree``: for how many prompts the
first token is the same as Quire's, a sign that the same model is computed (near-ties may differ).

The limits: a step must read every weight at least once, and compute two operations per weight and
row: in float32, or for weights of 16 bits in bfloat16 where the CPU has such products. Bytes and
operations per second are measured with torch in each round (``bench.peers.machine_limits``). A
share above 100 % means that torch's own sum or product does not reach the machine's limit, or that
the weights fit into a cache.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3ForCausalLM

from bench.gguf_directory import write_gguf_directory
from bench.peers.machine_limits import Limits, Machine
from bench.peers.protocol import Prompts, Timing
from bench.report import write_result
from bench.shapes import SHAPES, shape_config

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "build" / "peer-models"
START_SECONDS = 600
RUN_SECONDS = 600
# Libraries' threads spin for a while after their work (OpenMP: 0.2 s).
CALM_SECONDS = 0.3

PEER_SHAPES = ("234m", "13m", "1b")


class Absent(Exception):  # noqa: N818 - not an error: the row is skipped
    """A peer cannot run here; the message says why."""


@dataclass(frozen=True)
class Engine:
    """``bits``: per weight; the table compares engines with the same kind of weights. ``form``: the
    format its model is converted to ("": the checkpoint itself). ``ours``: the reference for the
    others."""

    name: str
    module: str
    bits: int
    form: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    ours: bool = False


ENGINES = (
    Engine("quire", "quire_engine", 16, "", {"engine": {"dtype": "bfloat16"}}, ours=True),
    Engine("llama.cpp-bf16", "llama_cpp_engine", 16, "gguf bf16"),
    Engine("llama.cpp-f16", "llama_cpp_engine", 16, "gguf f16"),
    Engine("llama.cpp-f32", "llama_cpp_engine", 16, "gguf f32"),
    Engine(
        "openvino-f32",
        "openvino_engine",
        16,
        "openvino",
        {"properties": {"INFERENCE_PRECISION_HINT": "f32"}},
    ),
    Engine("openvino", "openvino_engine", 16, "openvino", {"properties": {}}),
    Engine(
        "generate-fp32",
        "transformers_engine",
        16,
        settings={"dtype": "float32", "continuous": False},
    ),
    Engine(
        "generate-bf16",
        "transformers_engine",
        16,
        settings={"dtype": "bfloat16", "continuous": False},
    ),
    Engine(
        "generate_batch",
        "transformers_engine",
        16,
        settings={"dtype": "float32", "continuous": True},
    ),
    Engine("quire-f32", "quire_engine", 16, "", {"engine": {"dtype": "float32"}}),
    Engine("quire-int8", "quire_engine", 8, "", {"engine": {"quantization": "int8"}}, ours=True),
    Engine("llama.cpp-q8_0", "llama_cpp_engine", 8, "gguf q8_0"),
    # The same file for both.
    Engine("quire-q4_k_m", "quire_engine", 4, "directory q4_k_m", ours=True),
    Engine("llama.cpp-q4_k_m", "llama_cpp_engine", 4, "gguf q4_k_m"),
    Engine("quire-int4", "quire_engine", 4, "", {"engine": {"quantization": "int4"}}),
    Engine("llama.cpp-q4_0", "llama_cpp_engine", 4, "gguf q4_0"),
)


class Worker:
    """An engine's process. Raises Absent if it cannot start."""

    def __init__(self, engine: Engine, model: Path, threads: int, peers: Path) -> None:
        self.engine = engine
        python = sys.executable if runs_here(engine) else str(peers / "bin" / "python")
        settings = {"model": str(model), "threads": threads, **engine.settings}
        command = [python, "-m", f"bench.peers.{engine.module}", json.dumps(settings)]
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), HF_HUB_OFFLINE="1")
        try:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise Absent(f"{python} cannot be run: {error}") from error
        self.version: str = self._answer(START_SECONDS)["ready"]

    def run(self, prompts: Prompts, tokens: int) -> Timing:
        assert self._process.stdin is not None
        request = json.dumps({"prompts": prompts, "tokens": tokens}) + "\n"
        self._process.stdin.write(request.encode())
        self._process.stdin.flush()
        timing = Timing(**self._answer(RUN_SECONDS))
        if timing.tokens != tokens * len(prompts):
            raise RuntimeError(f"{self.engine.name} made {timing.tokens} tokens")
        time.sleep(CALM_SECONDS)
        return timing

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answer(self, seconds: float) -> Any:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self.stop()
            raise Absent("it ended" if ready else f"it said nothing for {seconds:.0f} s")
        return json.loads(line)


def runs_here(engine: Engine) -> bool:
    return engine.module in ("quire_engine", "transformers_engine")


def checkpoint(shape: str) -> Path:
    """Create random bf16 weights in Hugging Face format, unless they exist."""
    path = MODELS / shape
    if not (path / "model.safetensors").exists():
        torch.manual_seed(0)
        model: torch.nn.Module = Qwen3ForCausalLM(shape_config(shape, 4096))
        model.to(torch.bfloat16)
        model.save_pretrained(path)  # type: ignore[operator]  # a module of transformers has it
    return path


def converted(shape: str, form: str, peers: Path) -> Path:
    """Convert the checkpoint to a peer's format, unless that is done. ``directory``: a model
    directory for Quire, around a peer's GGUF file. Raises Absent."""
    source = checkpoint(shape)
    if not form:
        return source
    name, *kind = form.split()
    out = MODELS / "-".join([shape, name, *kind])
    if out.exists():
        return out
    if name == "directory":
        path = converted(shape, " ".join(["gguf", *kind]), peers)
        out.mkdir()
        write_gguf_directory(path, out)
        return out
    python = peers / "bin" / "python"
    if not python.exists():
        raise Absent(f"no environment in {peers} (make peers)")
    making = out.with_name(f"making-{out.name}")
    done = subprocess.run(
        [str(python), "-m", "bench.peers.convert", name, *kind, str(source), str(making)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Absent(f"the model could not be converted: {done.stderr.strip()[-300:]}")
    making.rename(out)
    return out


def weights_of(shape: str) -> tuple[int, int]:
    """Return the number of weights that every token is multiplied with, and of those in the head,
    which are used only for tokens that are followed by a sampled one."""
    c = json.loads((checkpoint(shape) / "config.json").read_text())
    heads = 2 * c["num_attention_heads"] + 2 * c["num_key_value_heads"]
    layer = c["hidden_size"] * (heads * c["head_dim"] + 3 * c["intermediate_size"])
    return layer * c["num_hidden_layers"], c["hidden_size"] * c["vocab_size"]


@dataclass
class Row:
    """One engine's timings for one shape, batch and thread count, one per round."""

    shape: str
    batch: int
    threads: int
    prompt: int
    output: int
    engine: str
    bits: int
    version: str
    timings: list[Timing] = field(default_factory=list)
    agree: int = 0

    def rates(self, phase: str) -> list[float]:
        """Return tokens per second in each round; prompt tokens for ``prefill``."""
        decoded = self.batch * (self.output - 1)
        found = []
        for timing in self.timings:
            if phase == "total":
                found.append(self.batch * self.output / ((timing.prefill or 0) + timing.decode))
            elif timing.prefill is not None:
                seconds = timing.prefill if phase == "prefill" else timing.decode
                tokens = self.batch * self.prompt if phase == "prefill" else decoded
                found.append(tokens / seconds)
        return found


PHASES = ("prefill", "decode", "total")


def measure(
    options: argparse.Namespace, shape: str, threads: int
) -> Iterator[tuple[list[Row], list[Limits]]]:
    workers = []
    for engine in ENGINES:
        if engine.name not in options.engines:
            continue
        try:
            model = converted(shape, engine.form, options.peers)
            workers.append(Worker(engine, model, threads, options.peers))
        except Absent as error:
            print(f"{engine.name} is skipped: {error}", flush=True)
    machine = Machine()
    try:
        for batch in options.batches:
            yield measure_batch(options, workers, machine, shape, threads, batch)
    finally:
        for worker in workers:
            worker.stop()


def measure_batch(
    options: argparse.Namespace,
    workers: list[Worker],
    machine: Machine,
    shape: str,
    threads: int,
    batch: int,
) -> tuple[list[Row], list[Limits]]:
    chance = random.Random(batch)
    vocabulary = range(3, SHAPES[shape]["vocab_size"])
    prompts = [chance.choices(vocabulary, k=options.prompt) for _ in range(batch)]
    for worker in tuple(workers):
        try:
            worker.run(prompts, 4)
        except Absent as error:  # a peer that crashes on this machine
            print(f"{worker.engine.name} is skipped: {error}", flush=True)
            workers.remove(worker)
    rows = [
        Row(
            shape,
            batch,
            threads,
            options.prompt,
            options.output,
            worker.engine.name,
            worker.engine.bits,
            worker.version,
        )
        for worker in workers
    ]
    limits = []
    for _ in range(options.rounds):
        limits.append(machine.limits(threads))
        for worker, row in zip(workers, rows, strict=True):
            row.timings.append(worker.run(prompts, options.output))
    for row in rows:
        pairs = zip(row.timings[0].first, rows[0].timings[0].first, strict=True)
        row.agree = sum(a == b for a, b in pairs)
    return rows, limits


def median_ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def most(row: Row, phase: str, limits: list[Limits]) -> list[float]:
    """Return the tokens per second of the phase that the machine's limits allow, in each round."""
    layers, head = weights_of(row.shape)
    tokens = row.batch * (row.prompt if phase == "prefill" else 1)
    operations = 2 * (layers * tokens + head * row.batch)
    read = (layers + head) * row.bits / 8
    found = []
    for limit in limits:
        rate = max(limit.float32, limit.bfloat16) if row.bits == 16 else limit.float32
        found.append(tokens / max(read / limit.read, operations / rate))
    return found


def table(rows: list[Row], limits: list[Limits]) -> Iterator[str]:
    first = rows[0]
    read = statistics.median(limit.read for limit in limits) / 1e9
    product = statistics.median(limit.float32 for limit in limits) / 1e9
    small = statistics.median(limit.bfloat16 for limit in limits) / 1e9
    yield (
        f"\n{first.shape}, batch {first.batch}, {first.threads} threads, {first.prompt} tokens in, "
        f"{first.output} out; limits: {read:.1f} GB/s, {product:.0f} GFLOP/s"
        + (f", {small:.0f} in bfloat16" if small else "")
    )
    yield f"{'tokens/s':16}" + "".join(f"{phase:>9}  ratio" for phase in PHASES) + "  agree"
    compared = {engine.name for engine in ENGINES if engine.ours}
    ours = {row.bits: row for row in rows if row.engine in compared}
    for row in rows:
        line = f"{row.engine:16}"
        for phase in PHASES:
            rates = row.rates(phase)
            if not rates:
                line += f"{'-':>9}  {'-':>5}"
                continue
            line += f"{statistics.median(rates):9.1f}"
            mine = ours.get(row.bits)
            line += f"  {median_ratio(mine.rates(phase), rates) if mine else 0:5.2f}"
        yield line + f"  {row.agree}/{row.batch}"
    for row in ours.values():
        shares = []
        for phase in ("prefill", "decode"):
            floor = most(row, phase, limits)
            share = median_ratio(row.rates(phase), floor)
            shares.append(f"{phase} {statistics.median(floor):.1f}, of which {share:.0%}")
        yield f"limits for {row.engine}: " + "; ".join(shares)
    for bits, row in ours.items():
        peers = [r for r in rows if r.bits == bits and not r.engine.startswith("quire")]
        for phase in PHASES:
            better = [max(each) for each in zip(*_known(peers, phase), strict=True)]
            if better:
                ratio = median_ratio(row.rates(phase), better)
                yield f"{row.engine} to the best peer, {phase}: {ratio:.2f}"


def _known(rows: list[Row], phase: str) -> list[list[float]]:
    return [rates for row in rows if (rates := row.rates(phase))]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [engine.name for engine in ENGINES]
    parser.add_argument("--shapes", nargs="+", choices=PEER_SHAPES, default=PEER_SHAPES)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--engines", nargs="+", choices=names, default=names)
    parser.add_argument("--prompt", type=int, default=128, help="tokens in")
    parser.add_argument("--output", type=int, default=128, help="tokens out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--peers", type=Path, default=ROOT / "build" / "peers", help="the peers' environment"
    )
    parser.add_argument("--name", default="cpu_peers", help="of the file in bench/results")
    return parser.parse_args()


def main() -> None:
    options = _options()
    found: list[dict[str, Any]] = []
    for shape, threads in itertools.product(options.shapes, options.threads):
        for rows, limits in measure(options, shape, threads):
            if not rows:
                continue
            print("\n".join(table(rows, limits)), flush=True)
            found.append(
                {
                    "limits": [asdict(limit) for limit in limits],
                    "engines": [asdict(row) for row in rows],
                }
            )
    path = write_result(options.name, found, capability=torch.backends.cpu.get_cpu_capability())
    print(f"written to {path}")


if __name__ == "__main__":
    main()
