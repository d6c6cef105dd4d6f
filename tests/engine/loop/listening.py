"""An engine core over the checking model, two connections to it, and what they receive."""

from __future__ import annotations

import struct
from typing import cast

from engine.loop.core import EngineCore
from engine.messages import Finished, Generate, SamplingParams, StepOutputs, Submit
from tests.engine.checking_runner import CheckingRunner

ALICE, BOB = 1, 2


def engine(runner: CheckingRunner | None = None, **settings: int) -> EngineCore:
    core = EngineCore(
        runner or CheckingRunner(vocab_size=1000),
        max_num_seqs=settings.get("max_num_seqs", 8),
        max_num_batched_tokens=settings.get("max_num_batched_tokens", 64),
    )
    core.connect(ALICE)
    core.connect(BOB)
    return core


def submit(handle: int, prompt: list[int] | None = None, **fields: object) -> Submit:
    params = {"max_tokens": 4, "ignore_eos": True} | {
        name: fields.pop(name) for name in list(fields) if name in SamplingParams.__struct_fields__
    }
    output = cast("list[int]", fields.pop("output_token_ids", []))
    return Submit(
        handle=handle,
        request_id=str(fields.pop("request_id", f"r{handle}")),
        prompt_token_ids=[1, 2, 3] if prompt is None else prompt,
        task=Generate(SamplingParams(**params), output),  # type: ignore[arg-type]  # a test's own
        arrival_time=5.0,
        **fields,  # type: ignore[arg-type]
    )


def tokens(outputs: StepOutputs) -> list[tuple[int, int]]:
    count = len(outputs.token_ids) // 4
    return list(
        zip(
            struct.unpack(f"<{count}q", outputs.handles),
            struct.unpack(f"<{count}i", outputs.token_ids),
            strict=True,
        )
    )


class Listener:
    """Collects what each connection receives until there is no more work."""

    def __init__(self, core: EngineCore) -> None:
        self.tokens: dict[tuple[int, int], list[int]] = {}
        self.finished: dict[tuple[int, int], Finished] = {}
        self.steps: list[dict[int, StepOutputs]] = []
        while core.has_work:
            self.steps.append(core.step())
            for connection, outputs in self.steps[-1].items():
                for handle, token_id in tokens(outputs):
                    self.tokens.setdefault((connection, handle), []).append(token_id)
                for finished in outputs.finished:
                    self.finished[connection, finished.handle] = finished
