"""The plug-in's speed on a CPU against our own code: the same model by both, in one run.

    python -m bench.plug_in                           # the 234M shape, batches of 1 and 16

Random weights in bfloat16 are written to a directory, and two engines load it, with
``--model-impl native`` and ``transformers``. Rounds alternate. The ratio is of output tokens per
second of CPU time (median over the rounds); greedy tokens must be the same.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Literal

import torch
from transformers import Qwen3ForCausalLM

from bench.report import write_result
from bench.shapes import SHAPES, shape_config
from engine.config import EngineConfig
from engine.loop.core import EngineCore
from engine.messages import Generate, SamplingParams, Submit
from engine.run.assembly import load_model_runner

MAX_POSITIONS = 2048
_CONNECTION = 0


class _Engine:
    def __init__(self, directory: Path, by: Literal["native", "transformers"], batch: int) -> None:
        settings = EngineConfig(
            model=str(directory), model_impl=by, device="cpu", threads=1, max_num_seqs=batch
        )
        self._core = EngineCore(
            load_model_runner(settings, lambda phase, done, total: None),
            max_num_seqs=batch,
            max_num_batched_tokens=settings.sizes().max_num_batched_tokens,
            enable_prefix_caching=False,
        )
        self._core.connect(_CONNECTION)
        self._handle = 0

    def run(self, prompts: list[list[int]], count: int) -> tuple[list[int], float]:
        """Return the tokens in the order in which they came, and CPU seconds after the first step,
        which computes the prompts."""
        params = SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True)
        for prompt in prompts:
            self._handle += 1
            task = Generate(params)
            now = time.monotonic()
            self._core.add(
                _CONNECTION,
                Submit(
                    handle=self._handle,
                    request_id="bench",
                    prompt_token_ids=prompt,
                    task=task,
                    arrival_time=now,
                ),
            )
        tokens: list[int] = []
        begun = None
        while self._core.has_work:
            tokens += memoryview(self._core.step()[_CONNECTION].token_ids).cast("i").tolist()
            if begun is None and len(tokens) >= len(prompts):
                begun = time.process_time()
        assert begun is not None
        return tokens, time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="234m")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--prompt", type=int, default=64, help="tokens in")
    parser.add_argument("--output", type=int, default=48, help="tokens out")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model = Qwen3ForCausalLM(shape_config(options.shape, MAX_POSITIONS)).bfloat16()
        model.save_pretrained(folder)
        del model
        most = max(options.batches)
        engines = [_Engine(Path(folder), by, most) for by in ("native", "transformers")]
        for batch in options.batches:
            prompts = torch.randint(3, 1000, (batch, options.prompt)).tolist()
            seconds: list[list[float]] = []
            equal = True
            for _ in range(options.rounds + 1):
                found = [engine.run(prompts, options.output) for engine in engines]
                equal &= found[0][0] == found[1][0]
                seconds.append([each[1] for each in found])
            native, plugin = (
                statistics.median(each[side] for each in seconds[1:]) for side in (0, 1)
            )
            ratio = statistics.median(each[0] / each[1] for each in seconds[1:])
            steps = options.output - 1
            print(
                f"{options.shape}, batch {batch}: native {native / steps * 1e3:.1f} ms a step, "
                f"plug-in {plugin / steps * 1e3:.1f} ms, {ratio:.2f} of native's speed, tokens "
                + ("equal" if equal else "DIFFERENT"),
                flush=True,
            )
            rows.append({"batch": batch, "ratio": ratio, "native": native, "plugin": plugin})
    print(f"written to {write_result(f'plug_in_{options.shape}', rows)}")


if __name__ == "__main__":
    main()
