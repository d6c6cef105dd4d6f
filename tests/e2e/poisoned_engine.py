"""``python -m tests.e2e.poisoned_engine``: an engine that dies of certain requests.

They are marked by their ``max_tokens``, so that a client's retry has the same effect.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from engine import __main__ as engine_main
from engine.step.runner import Runner
from engine.step.step import ModelInfo, StepPlan, StepResult, StepUnderWay

POISON_MAX_TOKENS = 777
DEADLY_TOKENS = 10  # it dies as soon as it runs such a sequence with so many tokens


class PoisonedRunner:
    """The real model, but for that."""

    launch: Callable[[StepPlan], StepUnderWay] | None = None

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @property
    def info(self) -> ModelInfo:
        return self._runner.info

    def execute(self, plan: StepPlan) -> StepResult:
        for item in plan.scheduled:
            is_marked = item.sequence.params.max_tokens == POISON_MAX_TOKENS
            if is_marked and item.sequence.num_output_tokens >= DEADLY_TOKENS:
                os.kill(os.getpid(), signal.SIGKILL)
        return self._runner.execute(plan)

    def forget(self, uid: int) -> None:
        self._runner.forget(uid)


def poisoned(load: Callable[..., Runner]) -> Callable[..., Runner]:
    def load_poisoned(*args: Any, **kwargs: Any) -> Runner:
        return PoisonedRunner(load(*args, **kwargs))

    return load_poisoned


if __name__ == "__main__":
    engine_main.load_model = poisoned(engine_main.load_model)
    sys.exit(engine_main.main(sys.argv[1:]))
