"""What makes a host wait for its GPU, noticed without one, and the order of launches and reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from engine.device.device import Readback
from engine.run.model_runner import ModelRunner
from engine.step.step import StepPlan, StepResult, StepUnderWay

# Reading a tensor's values, or its shape where that depends on values, waits for the device.
READS = ("item", "tolist", "numpy", "cpu", "nonzero", "__bool__", "__int__", "__float__")
# These may touch memory of the host: they send, or read what has been copied. Kernels run through
# an interpreter, which has no device.
ALLOWED = ("engine.device.sending", "engine.device.device", "engine.gpu.kernels")


@dataclass
class FakeDevice:
    """``events``: ("launched", n) and ("read", n), in order. ``waits``: where, between the launch
    of a step and the read of its result, the engine did what makes a host wait for its GPU."""

    events: list[tuple[str, int]] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)  # their types
    _inside: bool = False

    def notice(self, what: str) -> None:
        frame = sys._getframe(2)
        name = frame.f_globals.get("__name__", "")
        if self._inside and name.startswith("engine.") and not name.startswith(ALLOWED):
            self.waits.append(f"{name}:{frame.f_lineno} {what}")

    @contextmanager
    def inside(self) -> Iterator[None]:
        before, self._inside = self._inside, True
        try:
            yield
        finally:
            self._inside = before

    def wrapped(self, launch: Callable[[StepPlan], StepUnderWay]) -> Callable[..., _Watched]:
        def launched(plan: StepPlan) -> _Watched:
            with self.inside():
                step = launch(plan)
            number = len(self.steps)
            self.steps.append(type(step).__name__)
            self.events.append(("launched", number))
            return _Watched(self, step, number)

        return launched

    def early_reads(self) -> list[int]:
        """Return the steps that were read before the next one was launched."""
        place = {event: index for index, event in enumerate(self.events)}
        return [
            number
            for number in range(len(self.steps) - 1)
            if place["launched", number + 1] > place["read", number]
        ]


class _Watched:
    def __init__(self, fake: FakeDevice, step: StepUnderWay, number: int) -> None:
        self._fake = fake
        self._step = step
        self._number = number

    def sample(self, skipped: Set[int]) -> None:
        with self._fake.inside():
            self._step.sample(skipped)

    def result(self) -> StepResult:
        self._fake.events.append(("read", self._number))
        return self._step.result()


def _is_slow_index(index: object) -> bool:
    """True for an index that torch copies to the device, or must count on it."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(
        isinstance(part, list) or (isinstance(part, torch.Tensor) and part.dtype == torch.bool)
        for part in parts
    )


def watch(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """Watch a runner that runs ahead."""
    fake = FakeDevice()
    assert runner.launch is not None
    monkeypatch.setattr(runner, "launch", fake.wrapped(runner.launch))

    def replace(
        owner: Any, name: str, is_wait: Callable[..., bool] = lambda *_, **__: True
    ) -> None:
        original = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            if is_wait(*args, **options):
                fake.notice(name)
            return original(*args, **options)

        monkeypatch.setattr(owner, name, watched)

    for name in READS:
        replace(torch.Tensor, name)
    for name in ("__getitem__", "__setitem__"):
        replace(torch.Tensor, name, lambda _, index, *__: _is_slow_index(index))
    replace(torch.Tensor, "to", lambda *args, **_: isinstance(args[1], torch.device))
    replace(torch, "tensor", lambda *_, **options: options.get("device") is not None)
    original = Readback.wait

    def wait(self: Readback) -> tuple[torch.Tensor, ...]:
        fake.notice("wait")
        return original(self)

    monkeypatch.setattr(Readback, "wait", wait)
    return fake
