"""The engine steps that traced requests link to, as spans.

A step that several requests name among their longest is exported once. Steps are in separate
traces, to which the traces of requests link.
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict

from observability import schema
from observability.tracing import FinishedSpan, SpanIdentity, SpanLink, Tracer, new_span_id
from service.engine.happenings import LongStep
from service.telemetry.record import RequestRecord

MAX_LINKED_STEPS = 4096  # of which one is known again
MAX_LINKS = 3
TRACE_SECONDS = 600.0


class LinkedSteps:
    """Writes a step's span when the first request links to it."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._links: OrderedDict[float, SpanLink] = OrderedDict()  # by the step's end
        self._trace_id = 0
        self._trace_window = -1

    def links(self, record: RequestRecord) -> tuple[SpanLink, ...]:
        """Return links to the request's longest steps."""
        if not record.longest_steps:
            return ()
        steps = {step.time: step for step in record.longest_steps}.values()  # choices share some
        if len(steps) > MAX_LINKS:
            longest = heapq.nlargest(MAX_LINKS, steps, key=lambda step: step.seconds)
        else:
            longest = list(steps)
        return tuple([self._link(record, step) for step in longest])

    def _link(self, record: RequestRecord, step: LongStep) -> SpanLink:
        known = self._links.get(step.time)
        if known is not None:
            return known
        link = self._links[step.time] = SpanLink(self._trace_at(step.time), new_span_id())
        if len(self._links) > MAX_LINKED_STEPS:
            self._links.popitem(last=False)
        identity = SpanIdentity(link.trace_id, link.span_id, sampled=True)
        self._tracer.write_root(identity, step_span(record, step))
        return link

    def _trace_at(self, moment: float) -> int:
        window = int(moment // TRACE_SECONDS)
        if window != self._trace_window:
            self._trace_window = window
            self._trace_id = random.getrandbits(128) or 1
        return self._trace_id


def step_span(record: RequestRecord, step: LongStep) -> FinishedSpan:
    """``record``: of a request that took part in the step."""
    end = record.received_wall_ns + round((step.time - record.received_time) * 1e9)
    return FinishedSpan(
        schema.SPAN_STEP,
        schema.SPAN_STEP.name,
        end - round(step.seconds * 1e9),
        end,
        {
            schema.ATTR_STEP_TOKENS: step.tokens,
            schema.ATTR_STEP_SEQUENCES: step.sequences,
            schema.ATTR_STEP_PREFILLED: tuple(each.request_id for each in step.prefills) or None,
            schema.ATTR_STEP_PREFILL_TOKENS: tuple(each.tokens for each in step.prefills) or None,
        },
    )
