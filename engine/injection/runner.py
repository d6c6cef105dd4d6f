"""A runner around the engine's own, in which faults happen."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial

import torch

from engine.architecture.errors import ModelError
from engine.faults.page import FaultPage, FaultTrigger
from engine.faults.table import Fault, Place
from engine.injection.logits import poison_logits
from engine.step.runner import Runner
from engine.step.sequence import Sequence
from engine.step.step import ModelInfo, StepPlan, StepResult, StepUnderWay

logger = logging.getLogger(__name__)

_Injection = Callable[[StepPlan], None]


def with_faults(runner: Runner, page: FaultPage) -> Runner:
    """Return the runner with the engine's faults, or as it is if there are none. Raises ModelError
    for a fault that this runner cannot have."""
    injections = [_injection(fault, trigger, runner) for fault, trigger in page.at(Place.ENGINE)]
    return FaultyRunner(runner, injections) if injections else runner


class FaultyRunner:
    """Before each step the injections see its plan; what they raise is the step's failure."""

    def __init__(self, runner: Runner, injections: Iterable[_Injection]) -> None:
        self._runner = runner
        self._injections = tuple(injections)
        self.launch: Callable[[StepPlan], StepUnderWay] | None = None
        if runner.launch is not None:
            self.launch = self._launch

    @property
    def info(self) -> ModelInfo:
        return self._runner.info

    def execute(self, plan: StepPlan) -> StepResult:
        self._inject(plan)
        return self._runner.execute(plan)

    def forget(self, uid: int) -> None:
        self._runner.forget(uid)

    def _launch(self, plan: StepPlan) -> StepUnderWay:
        self._inject(plan)
        launch = self._runner.launch
        assert launch is not None
        return launch(plan)

    def _inject(self, plan: StepPlan) -> None:
        for inject in self._injections:
            inject(plan)


class Aim:
    """Which sequence a fault happens to: the first of a step that the fault's keys allow."""

    def __init__(self, fault: Fault, trigger: FaultTrigger) -> None:
        self._fault = fault
        self._trigger = trigger

    def __call__(self, plan: StepPlan) -> Sequence | None:
        """Return the sequence that the fault is to happen to in this step, if it is. Steps without
        any that it could happen to do not count."""
        target = next(filter(self._is_target, (item.sequence for item in plan.scheduled)), None)
        if target is None or not self._trigger():
            return None
        logger.warning("injecting a fault: %s", self._fault.name)
        return target

    def _is_target(self, sequence: Sequence) -> bool:
        fault = self._fault
        if sequence.num_output_tokens < fault.output:
            return False
        return not fault.max_tokens or sequence.params.max_tokens == fault.max_tokens


def _injection(fault: Fault, trigger: FaultTrigger, runner: Runner) -> _Injection:
    aim = Aim(fault, trigger)
    match fault.name:
        case "engine_kill":
            return partial(_at, aim, _kill)
        case "engine_stall" | "slow_step":
            return partial(_at, aim, partial(time.sleep, fault.duration))
        case "step_oom":
            return OutOfMemory(aim)
        case "nan_logits":
            if runner.info.device.startswith("cuda") or runner.info.tensor_parallel_size > 1:
                raise ModelError(
                    "--fault nan_logits needs a CPU and one rank: add --device cpu and "
                    "--tensor-parallel-size 1"
                )
            return poison_logits(aim)
    raise AssertionError(fault.name)


def _at(aim: Aim, act: Callable[[], None], plan: StepPlan) -> None:
    if aim(plan) is not None:
        act()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class OutOfMemory:
    """Raises for a sequence once it is hit, whether it runs with others or alone: it is the one
    that does not fit."""

    def __init__(self, aim: Aim) -> None:
        self._aim = aim
        self._hit: set[int] = set()

    def __call__(self, plan: StepPlan) -> None:
        if not any(item.sequence.uid in self._hit for item in plan.scheduled):
            target = self._aim(plan)
            if target is None:
                return
            self._hit.add(target.uid)
        raise torch.OutOfMemoryError("out of memory (injected by --fault step_oom)")
