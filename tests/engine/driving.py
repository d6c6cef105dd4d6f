"""A real engine core over a real model, driven to completion in this process."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.config import EngineConfig
from engine.loop.core import EngineCore
from engine.messages import Finished, Generate, SamplingParams, StepOutputs, Submit, TokenLogprobs
from engine.run.assembly import load_model_runner
from engine.run.model_runner import ModelRunner
from engine.step.runner import Runner

CONNECTION = 1


@dataclass
class Output:
    """Everything that was reported about one sequence."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    finished: Finished | None = None


def load_runner(model: Path, **settings: Any) -> ModelRunner:
    usual: dict[str, Any] = {"threads": 1, "dtype": "float32", "device": "cpu"}
    config = EngineConfig(model=str(model), **(usual | settings))
    return load_model_runner(config, lambda phase, done, total: None)


class Engine:
    """Submits prompts and steps until all are finished. ``runner``: one already loaded."""

    def __init__(self, model: Path, *, runner: Runner | None = None, **settings: Any) -> None:
        config = {"max_num_seqs": 16, "max_num_batched_tokens": 2048} | settings
        self.core = EngineCore(
            runner or load_runner(model, **config),
            max_num_seqs=config["max_num_seqs"],
            max_num_batched_tokens=config["max_num_batched_tokens"],
            enable_prefix_caching=config.get("enable_prefix_caching", True),
        )
        self.core.connect(CONNECTION)
        self._next_handle = 0

    def generate(
        self, prompts: Iterable[list[int]], params: SamplingParams | list[SamplingParams]
    ) -> list[Output]:
        prompts = list(prompts)
        each = params if isinstance(params, list) else [params] * len(prompts)
        first = self._next_handle
        self._next_handle += len(prompts)
        for i, (prompt, wanted) in enumerate(zip(prompts, each, strict=True)):
            submit = Submit(
                handle=first + i,
                request_id=f"request-{first + i}",
                prompt_token_ids=list(prompt),
                task=Generate(wanted),
                arrival_time=0.0,
            )
            self.core.add(CONNECTION, submit)
        outputs = [Output() for _ in prompts]
        while self.core.has_work:
            self.collect(self.core.step()[CONNECTION], outputs, first)
        return outputs

    def collect(self, step: StepOutputs, outputs: list[Output], first: int) -> None:
        count = len(step.handles) // 8
        handles = struct.unpack(f"<{count}q", step.handles)
        token_ids = struct.unpack(f"<{count}i", step.token_ids)
        for i, (handle, token_id) in enumerate(zip(handles, token_ids, strict=True)):
            outputs[handle - first].token_ids.append(token_id)
            if i in step.logprobs:
                outputs[handle - first].logprobs.append(step.logprobs[i])
        for report in step.prompt_logprobs:
            outputs[report.handle - first].prompt_logprobs.extend(report.tokens)
        for finished in step.finished:
            outputs[finished.handle - first].finished = finished
