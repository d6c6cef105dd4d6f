"""Admission: what the engine cannot know decides whether a request is prepared at all.

The engine's waiting queue has the bounds and decides about places (``engine.schedule.gate``)."""

from __future__ import annotations

import math

from engine.queueing import QueueBounds, Refusal, RefusalReason
from service.admission.drain import Drain
from service.engine.engines import Engines
from service.engine.link import LinkPhase
from service.engine.refusals import refused
from service.engine.sequence import SequenceState
from service.engine.silence import EngineStatus, engine_status
from service.errors import (
    EngineUnavailableError,
    LoadingError,
    WrongTaskError,
)
from service.settings import ServiceSettings
from service.supervision.page import Supervision
from service.tenants.caller import ANYBODY, Caller

# Until a load shows how long it takes, clients may look again after this many seconds.
_FIRST_LOAD_SECONDS = 5


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
        link.bounds = QueueBounds(settings.max_waiting_requests, settings.max_waiting_tokens)
        self._longest_silence = settings.engine_silence_timeout
        self._link = link
        self._drain = drain
        self._supervision = supervision or Supervision(None)

    @property
    def most_waiting(self) -> int:
        """How many sequences may wait for the engine, which enforces it."""
        bounds = self._link.bounds
        assert bounds is not None
        return bounds.sequences

    @most_waiting.setter
    def most_waiting(self, sequences: int) -> None:
        bounds = self._link.bounds
        assert bounds is not None
        self._link.bounds = QueueBounds(sequences, bounds.tokens)

    def check(self, caller: Caller = ANYBODY) -> None:
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

    def check_open(self, caller: Caller = ANYBODY) -> None:
        """Check any request for the engine. Raises DrainingError, LoadingError,
        EngineUnavailableError or OverloadedError."""
        if self._drain.refuses:
            raise self._drain.refusal()
        if self._link.state.phase is not LinkPhase.READY:
            self._check_restart(caller)
        status = engine_status(self._link, self._supervision, self._longest_silence)
        if status is EngineStatus.SILENT:
            raise EngineUnavailableError(
                f"No message from the engine for {self._link.silence:.0f} s; retry."
            )

    def _check_restart(self, caller: Caller) -> None:
        """While there is no engine, admit a request only if the next engine is expected in time."""
        problem = self._supervision.problem
        if problem is not None:
            raise EngineUnavailableError(f"The engine is not running: {problem}.")
        if self._link.expects_engine:
            self._check_places(caller)
            return
        match self._link.state.phase:
            case LinkPhase.CONNECTING | LinkPhase.LOADING:
                raise self.still_loading()
            case LinkPhase.LOST:
                raise EngineUnavailableError(
                    f"The engine does not respond: {self._link.state.detail}; retry.",
                    retry_after=self._restart_seconds(),
                )

    def still_loading(self) -> LoadingError:
        """Return the error for what needs a model while none is ready."""
        detail = self._supervision.engine_detail(self._link.state.detail)
        return LoadingError(
            f"The model is not ready yet ({detail}); retry.",
            retry_after=self._restart_seconds() or _FIRST_LOAD_SECONDS,
        )

    def check_choices(self, caller: Caller, choices: int) -> None:
        """Check all choices of a request that is about to be submitted. Raises OverloadedError
        while there is no engine to judge them."""
        if self._link.state.phase is not LinkPhase.READY and self._link.expects_engine:
            self._check_places(caller, choices)

    def _check_places(self, caller: Caller, sequences: int = 1) -> None:
        """Raise OverloadedError when too many sequences would wait here for the next engine, which
        judges those that it has not accepted before. As in its queue, a tenant gets a part of the
        places by weight, with one more part left free for the next tenant, and a tenant of which
        nothing waits gets as many as it needs."""
        waiting = self._link.waiting_sequences
        retry_after = self._restart_seconds()
        own = waiting
        if caller.tenant:
            own, places = self._tenant_places(caller)
            if own and own + sequences > places:
                raise refused(Refusal(RefusalReason.TENANT_SHARE, retry_after, own))
        if own and waiting + sequences > self.most_waiting:
            raise refused(Refusal(RefusalReason.QUEUE_REQUESTS, retry_after, waiting))

    def _tenant_places(self, caller: Caller) -> tuple[int, int]:
        """Return how many sequences of the caller's tenant wait, and how many may."""
        own = 0
        weights = {caller.tenant: caller.weight}
        for sequence in self._link.open_sequences:
            message = sequence.message
            if message is not None and sequence.state is not SequenceState.RUNNING:
                own += message.tenant == caller.tenant
                weights.setdefault(message.tenant, message.weight)
        part = caller.weight / (sum(weights.values()) + 1.0)
        return own, max(1, int(self.most_waiting * part))

    def _restart_seconds(self) -> int | None:
        """Estimate the seconds until a new engine is ready from the last one's load time; None for
        the first."""
        seconds = self._link.load_seconds
        return None if seconds is None else math.ceil(seconds) + 1
