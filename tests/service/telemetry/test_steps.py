"""Steps that traced requests link to."""

from __future__ import annotations

from typing import Any

import pytest

from observability import schema
from observability.admin_api import Prefill
from observability.tracing import FinishedSpan, IdentityTracer, SpanIdentity
from service.engine.happenings import LongStep
from service.telemetry import steps
from service.telemetry.record import RequestRecord
from service.telemetry.requests import Telemetry
from service.telemetry.steps import LinkedSteps
from tests.service.request_records import answered


class Roots(IdentityTracer):
    def __init__(self) -> None:
        self.written: list[tuple[SpanIdentity, FinishedSpan]] = []

    def write_root(self, identity: SpanIdentity, span: FinishedSpan) -> None:
        self.written.append((identity, span))


@pytest.fixture
def tracer() -> Roots:
    return Roots()


def record(*longest: LongStep, **changes: Any) -> RequestRecord:
    telemetry = Telemetry(["m"], version="1")
    return answered(telemetry, longest_steps=list(longest), **changes)


LONG = LongStep(1000.050, 0.030, 2048, 4, (Prefill("req_9", 2000), Prefill("req_8", 44)))


def test_a_step_is_a_span_of_its_own_with_whose_prompts_were_in_it(tracer: Roots) -> None:
    (link,) = LinkedSteps(tracer).links(record(LONG))
    ((identity, span),) = tracer.written
    assert (identity.trace_id, identity.span_id) == (link.trace_id, link.span_id)
    assert (span.start_ns, span.end_ns) == (5_020_000_000, 5_050_000_000)
    assert span.attributes == {
        schema.ATTR_STEP_TOKENS: 2048,
        schema.ATTR_STEP_SEQUENCES: 4,
        schema.ATTR_STEP_PREFILLED: ("req_9", "req_8"),
        schema.ATTR_STEP_PREFILL_TOKENS: (2000, 44),
    }


def test_a_step_of_several_requests_is_exported_once(tracer: Roots) -> None:
    linked = LinkedSteps(tracer)
    first = linked.links(record(LONG))
    assert linked.links(record(LONG, LONG, received_time=1000.010)) == first
    assert len(tracer.written) == 1


def test_a_request_links_to_its_three_longest_steps(tracer: Roots) -> None:
    longest = [LongStep(1000 + 0.01 * n, 0.001 * n, n, 1) for n in (2, 5, 1, 4, 3)]
    links = LinkedSteps(tracer).links(record(*longest))
    assert [span.attributes[schema.ATTR_STEP_TOKENS] for _, span in tracer.written] == [5, 4, 3]
    assert len({link.span_id for link in links}) == 3
    assert len({link.trace_id for link in links}) == 1


def test_a_trace_of_steps_is_bounded_in_time_and_so_is_what_is_known(
    tracer: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "MAX_LINKED_STEPS", 2)
    linked = LinkedSteps(tracer)
    every_five_minutes = [LongStep(1200.0 + 300.0 * n, 0.01, 1, 1) for n in range(4)]
    traces = {linked.links(record(each))[0].trace_id for each in every_five_minutes}
    assert len(traces) == 2
    assert len(tracer.written) == 4
    again = linked.links(record(every_five_minutes[0]))
    assert len(again) == 1
    assert len(tracer.written) == 5


def test_a_request_without_long_steps_has_no_links(tracer: Roots) -> None:
    assert LinkedSteps(tracer).links(record()) == ()
