"""A request's trace: joined at its beginning, kept or not at its end."""

from __future__ import annotations

from observability.sampling import checked_ratio
from observability.tracing import Tracer
from service.telemetry.kept_traces import TraceKeeping
from service.telemetry.record import RequestRecord
from service.telemetry.spans import phase_spans, server_span
from service.telemetry.steps import LinkedSteps


class RequestTraces:
    """``newest_names``: also write attributes that the conventions have not released.
    ``keeping`` may be changed at any time."""

    def __init__(self, tracer: Tracer, *, newest_names: bool = False) -> None:
        self._tracer = tracer
        self._newest_names = newest_names
        self._steps = LinkedSteps(tracer)
        self.keeping = TraceKeeping()

    @property
    def sampling_ratio(self) -> float | None:
        """The share of traces that the sampler chooses; None if none are exported."""
        sampling = self._tracer.sampling
        return None if sampling is None else sampling.ratio

    def set_sampling_ratio(self, ratio: float) -> None:
        """Raises ValueError if it is not from 0 to 1. Without an endpoint it has no effect."""
        checked = checked_ratio(ratio)
        if self._tracer.sampling is not None:
            self._tracer.sampling.ratio = checked

    def begin(self, record: RequestRecord) -> None:
        """Join the record to its caller's trace or start a new one."""
        identity = self._tracer.begin(record.traceparent, record.tracestate)
        record.identity, record.traced = identity, identity.sampled
        record.trace_id, record.span_id = identity.trace_id_hex, identity.span_id_hex

    def trust_caller(self, record: RequestRecord) -> None:
        """Let the sampled flag of the caller decide, if it sent one."""
        if record.identity is not None and record.identity.parent is not None:
            record.identity = self._tracer.trust(record.identity)
            record.traced = record.identity.sampled

    def decide(self, record: RequestRecord) -> None:
        """Decide whether the trace of an ended request is exported."""
        if record.identity is None or self._tracer.sampling is None:
            return
        if not record.traced:
            record.kept_because = self.keeping.reason(record)
            record.traced = record.kept_because is not None

    def write(self, record: RequestRecord) -> None:
        """Export the trace, if it was decided so."""
        if record.traced and record.identity is not None:
            server = server_span(
                record, links=self._steps.links(record), newest_names=self._newest_names
            )
            self._tracer.write(record.identity, server, phase_spans(record))
