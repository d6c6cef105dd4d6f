"""Whether the engine is well, as seen by an API worker: one answer for ``/health``, gRPC health,
``quire_engine_ready`` and the log.

An engine that is well sends a message at least every two seconds: its steps, a heartbeat while
idle, a report during a long step. So it is silent because its process is stopped or starved, or
because a step takes far longer than it may.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Sequence
from dataclasses import dataclass

from engine.queueing import ServiceClass
from observability.logging import get_logger
from service.engine.engines import Engines
from service.engine.link import EngineLink, LinkPhase
from service.engine.waits import ClassWait, waits
from service.supervision.page import Supervision

LOOK_SECONDS = 0.25
# A look this late says more about this worker than about the engine, whose messages wait unread.
_TOO_LATE_SECONDS = 1.0

_log = get_logger()


class EngineStatus(enum.StrEnum):
    OK = "ok"
    LOADING = "loading"
    LOST = "lost"  # it is gone
    FAILING = "failing"  # it dies repeatedly
    SILENT = "silent"  # no message from it for too long


# Of several engines, the first of these that one of them has is the status of all.
_BEST_FIRST = (
    *(EngineStatus.OK, EngineStatus.SILENT, EngineStatus.LOADING),
    *(EngineStatus.LOST, EngineStatus.FAILING),
)
# Of several engines, a verdict is about the one whose status comes first here.
WORST_FIRST = (
    *(EngineStatus.SILENT, EngineStatus.FAILING, EngineStatus.LOST),
    *(EngineStatus.LOADING, EngineStatus.OK),
)


def engine_status(
    engines: Engines, supervision: Supervision, silence_timeout: float
) -> EngineStatus:
    """Return the status of all engines together: OK if one of them is."""
    return status_of_all(engine_statuses(engines, supervision, silence_timeout))


def engine_statuses(
    engines: Engines, supervision: Supervision, silence_timeout: float
) -> list[EngineStatus]:
    """Return the status of each engine."""
    return [link_status(link, supervision, silence_timeout) for link in engines.links]


def status_of_all(each: Sequence[EngineStatus]) -> EngineStatus:
    return min(each, key=_BEST_FIRST.index)


def link_status(link: EngineLink, supervision: Supervision, silence_timeout: float) -> EngineStatus:
    """Return the status of one engine."""
    phase = link.state.phase
    if phase is not LinkPhase.READY and supervision.problem is not None:
        return EngineStatus.FAILING
    match phase:
        case LinkPhase.CONNECTING | LinkPhase.LOADING:
            return EngineStatus.LOADING
        case LinkPhase.LOST:
            return EngineStatus.LOST
    return EngineStatus.SILENT if link.silence > silence_timeout else EngineStatus.OK


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """What the worker knows of the engine at one moment, in seconds. ``silence``: since its last
    message; None before the first. ``predicted_wait``: until the sequences now waiting have
    started, at the recent pace; None if none started recently. ``waits``: of each class.
    ``engines``: the status of each."""

    status: EngineStatus
    silence: float | None
    waits: dict[ServiceClass, ClassWait]
    longest_gap: float
    predicted_wait: float | None
    engines: Sequence[EngineStatus] = ()

    @property
    def oldest_wait(self) -> float:
        """How long the sequence that has waited longest has done so; 0 if none waits."""
        return max((one.oldest for one in self.waits.values()), default=0.0)


def engine_figures(link: Engines, each: Sequence[EngineStatus]) -> EngineFigures:
    """``each``: the status of each engine. Takes time in proportion to the open sequences, 0.1 ms
    for a thousand."""
    now, sequences = time.monotonic(), link.open_sequences
    return EngineFigures(
        status_of_all(each),
        None if link.last_message_time is None else link.silence,
        waits(sequences, now),
        sequences.longest_gap(now),
        link.predicted_wait(link.waiting_sequences),
        each,
    )


class SilenceLog:
    """Logs when an engine falls silent, and when that is over."""

    def __init__(self, engines: Engines, supervision: Supervision, silence_timeout: float) -> None:
        several = len(engines.links) > 1
        self._watches = [
            _Watch(link, supervision, silence_timeout, {"engine": link.number} if several else {})
            for link in engines.links
        ]

    async def run(self) -> None:
        """Look every ``LOOK_SECONDS``, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOK_SECONDS
            await asyncio.sleep(LOOK_SECONDS)
            if loop.time() - due < _TOO_LATE_SECONDS:
                self.look()

    def look(self) -> None:
        for watch in self._watches:
            watch.look()


class _Watch:
    """Of one engine. ``fields``: of its log lines."""

    def __init__(
        self,
        link: EngineLink,
        supervision: Supervision,
        silence_timeout: float,
        fields: dict[str, int],
    ) -> None:
        self._link = link
        self._supervision = supervision
        self._timeout = silence_timeout
        self._fields = fields
        self._since: float | None = None  # when the message before the silence came
        self._waited = 0  # sequences

    def look(self) -> None:
        link = self._link
        status = link_status(link, self._supervision, self._timeout)
        if status is EngineStatus.SILENT:
            self._waited = len(link.open_sequences)
            if self._since is None:
                self._since = link.last_message_time
                _log.warning(
                    "the engine is silent",
                    silent_seconds=round(link.silence, 1),
                    sequences=self._waited,
                    **self._fields,
                )
        elif self._since is not None:
            ended = link.last_message_time if status is EngineStatus.OK else None
            seconds = (time.monotonic() if ended is None else ended) - self._since
            self._since = None
            _log.warning(
                "the engine's silence is over",
                silent_seconds=round(seconds, 1),
                sequences=self._waited,
                status=status.value,
                **self._fields,
            )
