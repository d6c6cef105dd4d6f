"""A real engine core with a real model, for tests of vectors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.loop.core import EngineCore
from engine.messages import Embed, Finished, Generate, SamplingParams, StepOutputs, Submit

CONNECTION = 1


class Embedder:
    """Submits texts and prompts, and steps until all are finished. ``steps`` counts them."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self.core.connect(CONNECTION)
        self.vectors: dict[int, NDArray[np.float32]] = {}
        self.tokens: dict[int, list[int]] = {}
        self.finished: dict[int, Finished] = {}
        self.steps = 0
        self._next = 0

    def embed(self, token_ids: list[int], *, priority: int = 0, **fields: Any) -> int:
        """The handle under which its vector will be found."""
        handle = self._next
        self._next += 1
        self.core.add(
            CONNECTION,
            Submit(
                handle=handle,
                request_id=f"e{handle}",
                prompt_token_ids=list(token_ids),
                task=Embed(**fields),
                priority=priority,
                arrival_time=0.0,
            ),
        )
        return handle

    def generate(self, token_ids: list[int], max_tokens: int) -> int:
        handle = self._next
        self._next += 1
        self.core.add(
            CONNECTION,
            Submit(
                handle=handle,
                request_id=f"g{handle}",
                prompt_token_ids=list(token_ids),
                task=Generate(
                    SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
                ),
                arrival_time=0.0,
            ),
        )
        return handle

    def run(self) -> None:
        while self.core.has_work:
            self.steps += 1
            self.take(self.core.step()[CONNECTION])

    def take(self, step: StepOutputs) -> None:
        for embedded in step.embedded:
            self.vectors[embedded.handle] = np.frombuffer(embedded.vector, "<f4")
        handles = memoryview(step.handles).cast("q")
        for handle, token in zip(handles, memoryview(step.token_ids).cast("i"), strict=True):
            self.tokens.setdefault(handle, []).append(token)
        for finished in step.finished:
            self.finished[finished.handle] = finished

    def vectors_of(self, texts: Iterable[list[int]], **fields: Any) -> list[NDArray[np.float32]]:
        handles = [self.embed(text, **fields) for text in texts]
        self.run()
        errors = [self.finished[handle].error for handle in handles]
        assert not any(errors), errors
        return [self.vectors[handle] for handle in handles]


def distance(one: NDArray[Any], other: NDArray[Any]) -> float:
    """1 minus the cosine of the angle between them."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    return float(1 - one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))
