"""OpenVINO GenAI's continuous batching, stepped manually so that the first token can be timed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import openvino
import openvino_genai

from bench.peers.protocol import Prompts, Stopwatch, Timing, serve

CACHE_GIB = 2
MAX_BATCHED_TOKENS = 4096


class OpenVINO:
    def __init__(self, settings: dict[str, Any]) -> None:
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GIB
        scheduler.max_num_batched_tokens = MAX_BATCHED_TOKENS
        scheduler.max_num_seqs = 64
        scheduler.enable_prefix_caching = False
        properties = {"INFERENCE_NUM_THREADS": settings["threads"], **settings["properties"]}
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            settings["model"], scheduler, "CPU", properties
        )
        self._ids = itertools.count()

    def run(self, prompts: Prompts, max_tokens: int) -> Timing:
        config = openvino_genai.GenerationConfig()
        config.do_sample = False
        config.ignore_eos = True
        config.max_new_tokens = max_tokens
        inputs = [openvino.Tensor(np.array([prompt], dtype=np.int64)) for prompt in prompts]
        watch = Stopwatch()
        handles = [self._pipeline.add_request(next(self._ids), ids, config) for ids in inputs]
        outputs: list[list[int]] = [[] for _ in prompts]
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for handle, tokens in zip(handles, outputs, strict=True):
                if handle.can_read():
                    for output in handle.read().values():
                        tokens += output.generated_ids
            if all(outputs):
                watch.prefilled()
        return watch.stop(sum(map(len, outputs)), [tokens[0] for tokens in outputs])


def start(settings: dict[str, Any]) -> tuple[str, Any]:
    return f"openvino-genai {openvino_genai.__version__}", OpenVINO(settings).run


if __name__ == "__main__":
    serve(start)
