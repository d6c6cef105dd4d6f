"""The interface through which the service reports requests and engine messages to telemetry.

``service.telemetry.requests`` implements it; the rest of the service uses only this protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from engine.messages import Heartbeat, StepOutputs
from observability.metrics import MetricRegistry
from observability.tracing import IdentityTracer
from service.telemetry.observed import Observed
from service.telemetry.record import RequestRecord
from service.telemetry.traces import RequestTraces

if TYPE_CHECKING:
    from service.engine.link import EngineState
    from service.engine.silence import EngineFigures


class Telemetry(Protocol):
    """All calls come from the worker's event loop and must not block."""

    metrics: MetricRegistry
    observed: Observed
    traces: RequestTraces

    def request_started(self, record: RequestRecord) -> None:
        """A request arrived. May set ``trace_id`` and ``span_id`` on the record."""

    def caller_trusted(self, record: RequestRecord) -> None:
        """Its caller may decide whether it is traced, by the sampled flag of its trace context."""

    def request_described(self, record: RequestRecord) -> None:
        """More of its record is known: whose it is, or its model and parameters."""

    def first_token(self, record: RequestRecord) -> None:
        """The first generated token reached the response, at ``record.first_token_time``."""

    def request_finished(self, record: RequestRecord) -> None:
        """Called exactly once per started request, after its last byte was sent or its client
        left."""

    def on_step(self, message: StepOutputs | Heartbeat, engine: int = 0) -> None:
        """An engine completed a step, or reports that it is idle."""

    def on_state(self, state: EngineState, engine: int = 0) -> None:
        """An engine's state changed (connecting, loading, ready, lost)."""

    def admin_request(self, scope: str, result: str) -> None:
        """A request to the admin API has ended; it is nothing else that is counted here."""

    def read_engine(self, read: Callable[[], EngineFigures]) -> None:
        """Set what is called for each metrics page, for figures that move without a message."""

    def exposition_pieces(self, accept: str) -> tuple[Iterator[bytes], str]:
        """Return the pieces of the metrics page, generated lazily, and its content type, for a
        scraper that accepts ``accept``."""


class RequestWatcher(Protocol):
    """Called on the event loop; must not block."""

    def began(self, record: RequestRecord) -> None:
        """A request arrived; its record fills up until it has ended."""

    def ended(self, record: RequestRecord, seconds: Mapping[str, float]) -> None:
        """A request has ended, perhaps one of the worker before. ``seconds``: of its phases."""


class NoTelemetry:
    """Ignores everything."""

    def __init__(self) -> None:
        self.metrics = MetricRegistry(["none"])
        self.observed = Observed()
        self.traces = RequestTraces(IdentityTracer())

    def request_started(self, record: RequestRecord) -> None:
        return

    def caller_trusted(self, record: RequestRecord) -> None:
        return

    def request_described(self, record: RequestRecord) -> None:
        return

    def first_token(self, record: RequestRecord) -> None:
        return

    def request_finished(self, record: RequestRecord) -> None:
        return

    def on_step(self, message: StepOutputs | Heartbeat, engine: int = 0) -> None:
        return

    def on_state(self, state: EngineState, engine: int = 0) -> None:
        return

    def admin_request(self, scope: str, result: str) -> None:
        return

    def read_engine(self, read: Callable[[], EngineFigures]) -> None:
        return

    def exposition_pieces(self, accept: str) -> tuple[Iterator[bytes], str]:
        return iter(()), "text/plain; version=0.0.4; charset=utf-8"
