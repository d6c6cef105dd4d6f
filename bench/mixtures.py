"""A mixture of experts on this machine's CPU, compared with memory, transformers and itself.

    python -m bench.mixtures                          # bfloat16, one and two threads
    python -m bench.mixtures --threads 1 --quantization int8 --no-peer

The model has OLMoE's proportions (16 layers, of 64 experts 8 are chosen) in a billion random
weights. Steps are those of the whole engine core. A round measures the rate at which memory is read
(``bench.peers.machine_limits``), steps of one sequence, steps of ``--batch`` sequences and
transformers' forward pass of one token, so that other load on the machine affects all of them
equally. A round's figure is its fastest step's, as the rate is its fastest reading's; the table has
medians over rounds, also of ratios.

floor: the time to read, at that rate, the weights that a step needs. One row needs its 8 experts of
each layer; ``--batch`` rows need those that they hit if each chooses at random. times: the
throughput of the batch, in those of one sequence. transformers: the fastest of its implementations
of experts, in bfloat16 or float32; eager: its eager one, likewise. ratio: their time to ours.
"""

from __future__ import annotations

import argparse
import copy
import random
import statistics
import tempfile
import time
from typing import Any, NamedTuple

import torch
from transformers import DynamicCache, OlmoeConfig, OlmoeForCausalLM
from transformers import logging as transformers_logging

from bench.peers.machine_limits import Machine
from bench.report import print_table, write_result
from engine.config import EngineConfig
from engine.loop.core import EngineCore
from engine.messages import Generate, SamplingParams, Submit
from engine.run.assembly import load_model_runner

CONNECTION = 0
PROMPT_TOKENS = 16
MAX_POSITIONS = 512
WARM_STEPS = 2
BITS = {"none": 16.0, "int8": 8.5, "int4": 4.5}  # per weight, with scales
IMPLEMENTATIONS = ("eager", "batched_mm", "grouped_mm")  # of transformers' experts

CONFIG = OlmoeConfig(
    vocab_size=50304,
    hidden_size=768,
    intermediate_size=384,
    num_hidden_layers=16,
    num_attention_heads=12,
    num_key_value_heads=12,
    num_experts=64,
    num_experts_per_tok=8,
    max_position_embeddings=MAX_POSITIONS,
    architectures=["OlmoeForCausalLM"],
    dtype="bfloat16",
)


def bytes_read(rows: int, bits: float) -> float:
    """Return the bytes of weights that a step of ``rows`` sequences needs, on average."""
    c = CONFIG
    missed = (1 - c.num_experts_per_tok / c.num_experts) ** rows
    experts = c.num_experts * (1 - missed) * 3 * c.hidden_size * c.intermediate_size
    attention = 4 * c.hidden_size**2
    router = c.num_experts * c.hidden_size * 16 / bits  # stays in bfloat16
    weights = c.num_hidden_layers * (experts + attention + router) + c.hidden_size * c.vocab_size
    return float(weights * bits / 8)


class Ours:
    """The engine. Every request has another prompt."""

    def __init__(self, settings: EngineConfig, batch: int, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self._core = EngineCore(
            load_model_runner(settings, lambda phase, done, total: None),
            max_num_seqs=batch,
            max_num_batched_tokens=settings.sizes().max_num_batched_tokens,
            enable_prefix_caching=False,
        )
        self._core.connect(CONNECTION)
        self._chance = random.Random(0)
        self._handle = 0

    def steps(self, rows: int, count: int) -> list[float]:
        """Return the seconds of ``count`` decode steps of ``rows`` sequences."""
        tokens = count + WARM_STEPS + rows  # prompts may take several steps
        params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
        for _ in range(rows):
            self._handle += 1
            prompt = self._chance.choices(range(self._vocabulary), k=PROMPT_TOKENS)
            self._core.add(
                CONNECTION,
                Submit(
                    handle=self._handle,
                    request_id="bench",
                    prompt_token_ids=prompt,
                    task=Generate(params),
                    arrival_time=0.0,
                ),
            )
        found: list[float] = []
        while self._core.has_work:
            begun = time.perf_counter()
            made = len(self._core.step()[CONNECTION].token_ids) // 4
            if made == rows:
                found.append(time.perf_counter() - begun)
        return found[WARM_STEPS : WARM_STEPS + count]


class Transformers:
    """One token of one sequence at a time, with a cache."""

    def __init__(self, dtype: torch.dtype) -> None:
        transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        torch.manual_seed(0)
        model: torch.nn.Module = OlmoeForCausalLM(copy.deepcopy(CONFIG))
        self._model: Any = model.to(dtype).eval()
        self._dtype = str(dtype).removeprefix("torch.")

    def kinds(self) -> list[Kind]:
        return [Kind(self, each, f"{self._dtype}, {each}") for each in IMPLEMENTATIONS]

    @torch.inference_mode()
    def steps(self, implementation: str, count: int) -> list[float]:
        """Return the seconds of ``count`` decode steps with one implementation of experts."""
        self._model.set_experts_implementation(implementation)
        cache = DynamicCache(config=self._model.config)
        token = torch.randint(CONFIG.vocab_size, (1, PROMPT_TOKENS))
        found = []
        for _ in range(1 + WARM_STEPS + count):
            begun = time.perf_counter()
            out = self._model(token, past_key_values=cache, use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
            found.append(time.perf_counter() - begun)
        return found[-count:]


class Kind(NamedTuple):
    """transformers with one dtype and one implementation of experts."""

    model: Transformers
    implementation: str
    name: str

    def fastest_step(self, count: int) -> float:
        return min(self.model.steps(self.implementation, count))


def peers() -> dict[str, Kind]:
    """Return the fastest kind of all, and the fastest with eager experts."""
    models = [Transformers(dtype) for dtype in (torch.bfloat16, torch.float32)]
    seconds = {kind: kind.fastest_step(2) for model in models for kind in model.kinds()}
    eager = [kind for kind in seconds if kind.implementation == "eager"]
    return {
        "transformers": min(seconds, key=seconds.__getitem__),
        "eager": min(eager, key=seconds.__getitem__),
    }


def measure(options: argparse.Namespace, threads: int, machine: Machine) -> dict[str, Any]:
    """Return the table's row for so many threads."""
    torch.set_num_threads(threads)
    theirs = peers() if options.peer else {}
    with tempfile.TemporaryDirectory() as directory:
        CONFIG.save_pretrained(directory)
        settings = EngineConfig(
            model=directory,
            load_format="dummy",
            dtype="bfloat16" if options.quantization == "none" else "float32",
            quantization=options.quantization,
            device="cpu",
            threads=threads,
            max_num_seqs=options.batch,
        )
        ours = Ours(settings, options.batch, CONFIG.vocab_size)
    bits = BITS[options.quantization]
    rounds = []
    for _ in range(options.rounds):
        read = machine.limits(threads).read
        one = min(ours.steps(1, options.steps))
        many = min(ours.steps(options.batch, options.steps))
        of_peers = {name: kind.fastest_step(options.steps) for name, kind in theirs.items()}
        floors = [bytes_read(rows, bits) / read for rows in (1, options.batch)]
        rounds.append(
            {
                "GB/s": read / 1e9,
                "1 row, ms": one * 1e3,
                "floor, ms": floors[0] * 1e3,
                "of floor": floors[0] / one,
                f"{options.batch} rows, ms": many * 1e3,
                "its floor, ms": floors[1] * 1e3,
                "of its floor": floors[1] / many,
                "times": options.batch * one / many,
                **{f"{name}, ms": seconds * 1e3 for name, seconds in of_peers.items()},
                **{f"{name} ratio": seconds / one for name, seconds in of_peers.items()},
            }
        )
    medians = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
    names = {f"{name} kind": kind.name for name, kind in theirs.items()}
    return {"threads": threads, **medians, **names}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--quantization", choices=tuple(BITS), default="none")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=8, help="of each kind in a round")
    parser.add_argument("--no-peer", dest="peer", action="store_false")
    return parser.parse_args()


def main() -> None:
    options = _options()
    machine = Machine()
    rows = [measure(options, threads, machine) for threads in options.threads]
    print_table(rows)
    print(write_result("mixtures", rows, batch=options.batch, quantization=options.quantization))


if __name__ == "__main__":
    main()
