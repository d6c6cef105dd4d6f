"""A desk that keeps what was asked of it, and the generations that it feeds."""

from __future__ import annotations

from typing import Any

from engine.messages import SamplingParams
from service.checkpoint.checkpoint import Checkpoint
from service.engine.sequence import EngineSequence, Waker
from service.engine.submission import Submission
from service.generation.generator import Generator
from service.generation.request import Generation, GenerationRequest
from service.tenants.caller import ANYBODY
from tests.service.at_once import at_once
from tests.service.wire.chat.test_answer import Desk


class WatchedDesk(Desk):
    def __init__(self) -> None:
        super().__init__()
        self.submissions: list[Submission] = []
        self.aborted: list[int] = []

    def submit(
        self, submission: Submission, waker: Waker, *, beside: EngineSequence | None = None
    ) -> list[EngineSequence]:
        self.submissions.append(submission)
        sequences = super().submit(submission, waker)
        for one in sequences:
            one.has_place = True
        return sequences

    def abort(self, sequences: list[EngineSequence]) -> None:
        self.aborted += [sequence.handle for sequence in sequences]
        super().abort(sequences)


def asked(**fields: Any) -> GenerationRequest:
    values: dict[str, Any] = {
        "request_id": "r",
        "prompts": [[1, 2, 3]],
        "params": SamplingParams(max_tokens=999),
        "arrival_time": 0.0,
    }
    return GenerationRequest(**{**values, **fields})


def begun(desk: Desk, checkpoint: Checkpoint, **fields: Any) -> Generation:
    return at_once(Generator(desk, checkpoint).start(asked(**fields), ANYBODY))
