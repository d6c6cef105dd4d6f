"""Quire: the whole engine core (scheduler, block tables, sampler), not only the forward pass."""

from __future__ import annotations

import struct
import time
from typing import Any

from bench.peers.protocol import Prompts, Stopwatch, Timing, serve
from engine.config import EngineConfig
from engine.loop.core import EngineCore
from engine.messages import Generate, SamplingParams, Submit
from engine.run.assembly import load_model_runner

CONNECTION = 0


class Quire:
    def __init__(self, settings: dict[str, Any]) -> None:
        config = EngineConfig(
            model=settings["model"],
            device="cpu",
            threads=settings["threads"],
            max_num_seqs=64,
            max_num_batched_tokens=4096,
            max_model_len=2048,
            **settings.get("engine", {}),
        )
        self._core = EngineCore(
            load_model_runner(config, lambda phase, done, total: None),
            max_num_seqs=config.sizes().max_num_seqs,
            max_num_batched_tokens=config.sizes().max_num_batched_tokens,
            enable_prefix_caching=False,
        )
        self._core.connect(CONNECTION)
        self._handle = 0

    def run(self, prompts: Prompts, max_tokens: int) -> Timing:
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        base, watch = self._handle, Stopwatch()
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
        first: dict[int, int] = {}
        tokens = 0
        while self._core.has_work:
            out = self._core.step()[CONNECTION]
            tokens += len(out.token_ids) // 4
            if len(first) < len(prompts):
                handles = (handle for (handle,) in struct.iter_unpack("<q", out.handles))
                chosen = (token for (token,) in struct.iter_unpack("<i", out.token_ids))
                first.update(zip(handles, chosen, strict=True))
                if len(first) == len(prompts):
                    watch.prefilled()
        return watch.stop(tokens, [first[base + 1 + i] for i in range(len(prompts))])


def start(settings: dict[str, Any]) -> tuple[str, Any]:
    return "this checkout", Quire(settings).run


if __name__ == "__main__":
    serve(start)
