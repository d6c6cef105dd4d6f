"""A value that is overridden for a while and falls back by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Held = TypeVar("Held")

LONGEST_SECONDS = 3600.0


class Timed(Generic[Held]):
    """``apply`` puts a value into force; ``lasting`` is the one without an override. Call all
    methods on one event loop. ``on_end`` is called with the lasting value when an override ends by
    itself."""

    def __init__(
        self,
        lasting: Held,
        apply: Callable[[Held], None],
        on_end: Callable[[Held], None] = lambda _: None,
    ) -> None:
        self._lasting = lasting
        self._apply = apply
        self._on_end = on_end
        self._value = lasting
        self._timer: asyncio.TimerHandle | None = None
        self.until: float | None = None  # epoch seconds; None: there is no override

    @property
    def lasting(self) -> Held:
        return self._lasting

    @property
    def value(self) -> Held:
        """The value in force."""
        return self._value

    def set(self, value: Held) -> None:
        """Change the lasting value. An override stays in force until its end."""
        self._lasting = value
        if self._timer is None:
            self._put(value)

    def override(self, value: Held, seconds: float) -> float:
        """Put a value into force for a while; return when it ends, in epoch seconds."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._fall_back)
        self._put(value)
        self.until = time.time() + seconds
        return self.until

    def _fall_back(self) -> None:
        self._timer, self.until = None, None
        self._put(self._lasting)
        self._on_end(self._lasting)

    def _put(self, value: Held) -> None:
        self._value = value
        self._apply(value)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
