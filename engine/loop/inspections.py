"""Answers requests to look into the KV cache: a slice of the work after each step, so that steps
are not delayed. At most two answers a second are worked out; who asks sooner gets the last one."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from engine.inspected import Inspect, Inspected
from engine.loop.ledger import Connection
from engine.schedule.inspection import Inspection
from engine.schedule.scheduler import Scheduler
from engine.schedule.scheduling import Scheduling

logger = logging.getLogger(__name__)

FRESH_SECONDS = 0.5
# Requests that wait; further ones take the place of the oldest, whose sender has given up.
MOST_WAITING = 16
_MOST_KEPT = 4  # answers


class InspectionQueue:
    def __init__(self, scheduler: Scheduling, clock: Callable[[], float]) -> None:
        self._scheduler = scheduler if isinstance(scheduler, Scheduler) else None
        self._clock = clock
        self._waiting: deque[tuple[Connection, Inspect]] = deque(maxlen=MOST_WAITING)
        self._current: tuple[Connection, Inspection] | None = None
        self._last: dict[tuple[bool, int], Inspected] = {}  # by kv and prefixes

    @property
    def has_work(self) -> bool:
        return self._current is not None or bool(self._waiting)

    def ask(self, connection: Connection, inspect: Inspect) -> None:
        self._waiting.append((connection, inspect))

    def advance(self) -> Iterator[tuple[Connection, Inspected]]:
        """Do one slice; yield what is answered."""
        while self._current is None and self._waiting:
            connection, inspect = self._waiting.popleft()
            last = self._last.get((inspect.kv, inspect.prefixes))
            if last is None or self._clock() - last.time >= FRESH_SECONDS:
                self._current = connection, Inspection(inspect, self._scheduler, self._clock)
            else:
                yield connection, msgspec.structs.replace(last, number=inspect.number)
        if self._current is None:
            return
        connection, inspection = self._current
        try:
            answer = inspection.advance()
        except Exception:  # not worth an engine; its sender gives up after a timeout
            logger.exception("failed to look into the KV cache")
            self._current = None
            return
        if answer is not None:
            self._current = None
            asked = inspection.inspect
            if len(self._last) >= _MOST_KEPT:
                self._last.clear()
            self._last[asked.kv, asked.prefixes] = answer
            yield connection, answer
