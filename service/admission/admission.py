"""Admission: requests are accepted, or rejected with a reason, before any work is done for them."""

from __future__ import annotations

import math

from service.admission.drain import Drain
from service.engine.engines import Engines
from service.engine.link import LinkPhase
from service.engine.silence import EngineStatus, engine_status
from service.errors import (
    EngineUnavailableError,
    LoadingError,
    OverloadedError,
    WrongTaskError,
)
from service.settings import ServiceSettings
from service.supervision.page import Supervision
from service.tenants.caller import Caller
from service.tenants.waiting_places import share

MAX_RETRY_AFTER_SECONDS = 120


class Admission:
    """Checks requests before any engine work. Status codes: 429 when capacity exists but is
    contended, 503 when there is none now."""

    def __init__(
        self,
        settings: ServiceSettings,
        link: Engines,
        drain: Drain,
        supervision: Supervision | None = None,
    ) -> None:
        self.most_waiting = settings.max_waiting_requests
        self._longest_silence = settings.engine_silence_timeout
        self._link = link
        self._drain = drain
        self._supervision = supervision or Supervision(None)

    def check(self, caller: Caller) -> None:
        """Check a generation request. Raises WrongTaskError for a model that does not generate
        text, else as ``check_open``."""
        self.check_open(caller)
        ready = self._link.state.ready
        if ready is not None and not ready.generates:
            served = "/v1/embeddings" if ready.embedding_size else "/v1/rerank and /v1/score"
            raise WrongTaskError(
                f"This model ({ready.architecture}) does not generate text; it serves {served}.",
                param="model",
            )

    def check_open(self, caller: Caller) -> None:
        """Check any request for the engine. Raises DrainingError, LoadingError,
        EngineUnavailableError or OverloadedError."""
        if self._drain.draining:
            raise self._drain.refusal()
        if self._link.state.phase is not LinkPhase.READY:
            self._check_restart()
        status = engine_status(self._link, self._supervision, self._longest_silence)
        if status is EngineStatus.SILENT:
            raise EngineUnavailableError(
                f"No message from the engine for {self._link.silence:.0f} s; retry."
            )
        self._check_places(caller)

    def _check_restart(self) -> None:
        """While there is no engine, admit a request only if the next engine is expected in time."""
        problem = self._supervision.problem
        if problem is not None:
            raise EngineUnavailableError(f"The engine is not running: {problem}.")
        if self._link.expects_engine:
            return
        match self._link.state.phase:
            case LinkPhase.CONNECTING | LinkPhase.LOADING:
                raise LoadingError(
                    f"The model is not ready yet ({self._link.state.detail}); retry.",
                    retry_after=self._restart_seconds(),
                )
            case LinkPhase.LOST:
                raise EngineUnavailableError(
                    f"The engine does not respond: {self._link.state.detail}; retry.",
                    retry_after=self._restart_seconds(),
                )

    def _check_places(self, caller: Caller) -> None:
        """Raise OverloadedError when too many sequences are waiting. If several keys share the
        server, none can occupy all places: a key with nothing waiting is always admitted, and no
        key may exceed its share."""
        waiting = self._link.waiting_sequences
        of_all = waiting >= self.most_waiting
        if caller.shares:
            own = self._link.waiting_of(caller.owner)
            others = self._link.waiting_owners(beside=caller.owner)
            if own == 0:
                return
            if not of_all and own >= share(self.most_waiting, others):
                raise OverloadedError(
                    f"{own} sequences of this key are already waiting; retry later.",
                    retry_after=self._retry_after(own),
                )
        if of_all:
            raise OverloadedError(
                f"{waiting} sequences are already waiting; retry later.",
                retry_after=self._retry_after(waiting),
            )

    def _restart_seconds(self) -> int | None:
        """Estimate the seconds until a new engine is ready from the last one's load time; None for
        the first."""
        seconds = self._link.load_seconds
        return None if seconds is None else math.ceil(seconds) + 1

    def _retry_after(self, waiting: int) -> int | None:
        """Estimate the seconds until the sequences now waiting have started, at the recent pace;
        None if none started recently."""
        seconds = self._link.predicted_wait(waiting)
        return None if seconds is None else min(MAX_RETRY_AFTER_SECONDS, max(1, math.ceil(seconds)))
