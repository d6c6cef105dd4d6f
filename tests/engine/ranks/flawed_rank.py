"""``python -m tests.engine.ranks.flawed_rank``: a rank that goes wrong when a step holds a
sequence that begins with one of the tokens below."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from engine.ranks import rank
from engine.run import assembly
from engine.run.model_runner import ModelRunner
from engine.step.step import StepPlan, StepResult, StepUnderWay

BEFORE = 101  # before anything is exchanged
MIDWAY = 102  # after the step's first exchange
AFTERWARDS = 103  # when the step is over
HANGS = 104  # midway, for ever
TROUBLES = (BEFORE, MIDWAY, AFTERWARDS, HANGS)


class FlawedRunner(ModelRunner):
    """Goes wrong at ``troubles``."""

    def __init__(
        self, *arguments: Any, troubles: Iterable[int] = TROUBLES, **settings: Any
    ) -> None:
        self._troubles = frozenset(troubles)
        self._trouble = 0
        super().__init__(*arguments, **settings)
        self._embed_whole = self._decoder._embed  # type: ignore[attr-defined]
        self._decoder._embed = self._embed_or_fail  # type: ignore[attr-defined]

    def execute(self, plan: StepPlan) -> StepResult:
        with self._troubled(plan):
            return super().execute(plan)

    def _launch(self, plan: StepPlan) -> StepUnderWay:
        with self._troubled(plan):
            return super()._launch(plan)

    @contextmanager
    def _troubled(self, plan: StepPlan) -> Iterator[None]:
        first = {item.sequence.token_ids[0] for item in plan.scheduled}
        self._trouble = next(iter(first & self._troubles), 0)
        if self._trouble == BEFORE:
            raise ValueError("flawed before the step")
        yield
        if self._trouble == AFTERWARDS:
            raise ValueError("flawed after the step")

    def _embed_or_fail(self, token_ids: Tensor) -> Tensor:
        x: Tensor = self._embed_whole(token_ids)
        if self._trouble == MIDWAY:
            raise ValueError("flawed midway")
        while self._trouble == HANGS:
            time.sleep(0.1)
        return x


def main(argv: list[str]) -> int:
    torch.set_num_threads(1)
    assembly.ModelRunner = FlawedRunner  # type: ignore[misc]
    return rank.main(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
