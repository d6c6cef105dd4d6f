"""A request's trace from its beginning to its end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from observability import schema
from observability.sampling import TraceSampling
from observability.tracing import FinishedSpan, IdentityTracer, SpanIdentity
from service.engine.happenings import LongStep
from service.telemetry.record import RequestRecord
from service.telemetry.requests import Telemetry
from service.telemetry.traces import RequestTraces
from tests.observability.traced import SAMPLED
from tests.service.request_records import answered


class Exporting(IdentityTracer):
    """Keeps what it is given; chooses by chance, and by the caller's flag where configured."""

    def __init__(self, ratio: float) -> None:
        self._sampling = TraceSampling(ratio, follows_callers=True)
        self.written: list[tuple[FinishedSpan, list[FinishedSpan]]] = []
        self.roots: list[FinishedSpan] = []

    @property
    def sampling(self) -> TraceSampling:
        return self._sampling

    def begin(self, traceparent: str | None, tracestate: str | None) -> SpanIdentity:
        identity = super().begin(traceparent, tracestate)
        sampled = self._sampling.takes(identity.trace_id)
        return SpanIdentity(identity.trace_id, identity.span_id, sampled, identity.parent)

    def trust(self, identity: SpanIdentity) -> SpanIdentity:
        assert identity.parent is not None
        sampled = self._sampling.takes(identity.trace_id, identity.parent.trace_flags.sampled)
        return SpanIdentity(identity.trace_id, identity.span_id, sampled, identity.parent)

    def write(
        self, identity: SpanIdentity, server: FinishedSpan, children: Iterable[FinishedSpan]
    ) -> None:
        self.written.append((server, list(children)))

    def write_root(self, identity: SpanIdentity, span: FinishedSpan) -> None:
        self.roots.append(span)


def ended(traces: RequestTraces, **changes: Any) -> RequestRecord:
    record = answered(Telemetry(["m"], version="1"), **changes)
    traces.begin(record)
    traces.decide(record)
    traces.write(record)
    return record


def test_an_error_is_exported_at_ratio_0_and_says_why() -> None:
    tracer = Exporting(0.0)
    traces = RequestTraces(tracer)
    assert not ended(traces).traced
    assert ended(traces, outcome="error:engine").traced
    ((server, phases),) = tracer.written
    assert server.attributes[schema.ATTR_KEPT] == "error"
    assert phases


def test_what_the_sampler_chose_needs_no_other_reason() -> None:
    tracer = Exporting(1.0)
    assert ended(RequestTraces(tracer), outcome="error:engine").kept_because is None
    assert len(tracer.written) == 1


@pytest.mark.parametrize("trusted", [False, True])
def test_a_callers_flag_counts_only_if_the_caller_is_trusted(trusted: bool) -> None:
    traces = RequestTraces(Exporting(0.0))
    record = answered(Telemetry(["m"], version="1"), traceparent=SAMPLED)
    traces.begin(record)
    if trusted:
        traces.trust_caller(record)
    traces.decide(record)
    assert record.traced == trusted


def test_only_requests_that_are_exported_take_their_steps_along() -> None:
    tracer = Exporting(0.0)
    traces = RequestTraces(tracer)
    ended(traces, longest_steps=[LongStep(1000.05, 0.03, 2048, 4)])
    assert not tracer.roots
    traces.set_sampling_ratio(1.0)
    ended(traces, longest_steps=[LongStep(1000.05, 0.03, 2048, 4)])
    assert len(tracer.roots) == 1
    assert len(tracer.written[0][0].links) == 1


def test_a_ratio_that_is_none_is_refused_and_the_one_before_stays() -> None:
    traces = RequestTraces(Exporting(0.5))
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="from 0 to 1"):
            traces.set_sampling_ratio(wrong)
    assert traces.sampling_ratio == 0.5


def test_without_an_endpoint_nothing_is_kept() -> None:
    traces = RequestTraces(IdentityTracer())
    traces.set_sampling_ratio(1.0)
    assert traces.sampling_ratio is None
    assert not ended(traces, outcome="error:engine").traced
