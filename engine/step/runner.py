"""What the loop needs of whatever runs a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.step.step import ModelInfo, StepPlan, StepResult, StepUnderWay


class Runner(Protocol):
    """Runs a model on a device, one step at a time or one step ahead.

    ``launch``, where there is one, starts a step and returns while the device computes it. Tokens
    that the step before samples are ``PENDING`` in the plan's sequences. It raises as ``execute``
    does, and so do a launched step's ``sample`` and ``result``.
    """

    @property
    def info(self) -> ModelInfo: ...

    @property
    def launch(self) -> Callable[[StepPlan], StepUnderWay] | None: ...

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the planned tokens. Running a plan again must be harmless: it writes the same
        values to the same places. An error that concerns one sequence is returned in its place;
        raising means that the whole step failed. Raises DeviceLostError when no step can work."""
        ...

    def forget(self, uid: int) -> None:
        """This sequence is finished: drop whatever is kept for it."""
        ...
