"""The interface between the loop and a model runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.step.step import ModelInfo, StepPlan, StepResult, StepUnderWay


class Runner(Protocol):
    """Runs a model on a device, one step at a time or one step ahead.

    ``launch``, if available, starts a step and returns while the device computes it. Tokens sampled
    by the previous step are ``PENDING`` in the plan's sequences. It raises as ``execute`` does, and
    so do a launched step's ``sample`` and ``result``.
    """

    @property
    def info(self) -> ModelInfo: ...

    @property
    def launch(self) -> Callable[[StepPlan], StepUnderWay] | None: ...

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the planned tokens. Running a plan again must be harmless: it writes the same
        values to the same places. An error that concerns one sequence is returned in its place;
        raising means that the whole step failed. Raises DeviceLostError when no step can run any
        more."""
        ...

    def forget(self, uid: int) -> None:
        """Drop the state of a finished sequence."""
        ...
