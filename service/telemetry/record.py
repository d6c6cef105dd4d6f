"""The record of one HTTP or gRPC request, the source of its metrics, spans and log line.

Routes fill it in while the request is served; ``service.telemetry.requests`` reads it once, at the
end. It holds no content: no prompt, no output, no key (but the alias of one).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.messages import Finished, PrefixMiss
from observability import phases
from observability.tracing import SpanIdentity


class Interval(NamedTuple):
    """Part of a phase that ran from ``begin`` to ``end``. ``phase``: its name."""

    phase: str
    begin: float
    end: float


_MOST_INTERVALS = 64
_SHORTEST_WAIT_SECONDS = 0.001


def add_interval(intervals: list[Interval], added: Interval) -> None:
    """Add an interval, or extend the last one if it is of the same phase. A request may be
    rendered and tokenized several times."""
    if intervals and intervals[-1].phase == added.phase:
        intervals[-1] = intervals[-1]._replace(end=added.end)
    elif len(intervals) < _MOST_INTERVALS:
        intervals.append(added)


@dataclass(slots=True)
class Flush:
    """How long writes waited for the client: ``seconds`` in all, between the two times. A write
    that ends within a millisecond has not waited for anybody."""

    seconds: float = 0.0
    begin: float = 0.0
    end: float = 0.0

    def waited(self, begin: float, end: float) -> None:
        """Add one write's wait."""
        if end - begin < _SHORTEST_WAIT_SECONDS:
            return
        if not self.seconds:
            self.begin = begin
        self.seconds += end - begin
        self.end = end


@dataclass(slots=True)
class RequestRecord:
    """Times are ``time.monotonic()`` seconds; ``received_wall_ns`` anchors them to the epoch."""

    request_id: str
    route: str  # one of observability.outcomes.ROUTES
    http_method: str
    http_route: str
    received_time: float
    received_wall_ns: int

    client_request_id: str | None = None
    key: str | None = None  # alias of the caller's; None if no key is needed, or it is wrong
    client_address: str | None = None  # as the listener saw it
    user_agent: str | None = None  # as sent, until telemetry has made it safe to log
    traceparent: str | None = None  # inbound W3C context, unparsed
    tracestate: str | None = None
    trace_id: str = ""
    span_id: str = ""
    identity: SpanIdentity | None = None  # the same ids, and whether this trace is exported

    model: str = ""  # a name the server serves, never the caller's text; "" while unknown
    operation: str = ""  # gen_ai.operation.name
    response_id: str = ""
    stream: bool = False
    choices: int = 1
    generates: bool = True  # False: it requests vectors or scores
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None

    status: int = 0  # HTTP status; for gRPC the equivalent one
    grpc_status: int | None = None  # None: an HTTP request
    outcome: str = ""  # one of observability.outcomes.OUTCOMES
    ignored: str | None = None  # paths of fields without effect, without their values
    error: str | None = None  # the error, without content
    error_code: str | None = None
    error_field: str | None = None  # the path of the field at fault, never its value
    retry_after: int | None = None  # in seconds, as sent to the client
    waiting: int | None = (
        None  # sequences that were waiting when the request was admitted or refused
    )
    asked: str | None = None  # what no route takes: the path, cut and made safe to log
    finish_reasons: list[str] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefix_miss: PrefixMiss | None = None  # why the prefix cache had no more of the prompt
    output_tokens: int = 0
    intervals: list[Interval] = field(default_factory=list)  # of receive, render and tokenize
    prepared_time: float | None = None  # what the engine is to do was known, or was refused
    flush: Flush = field(default_factory=Flush)
    first_token_time: float | None = None
    last_token_time: float | None = None
    ended_time: float | None = None
    sequences: list[Finished] = field(default_factory=list)  # the engine's record per choice

    def received_body(self) -> None:
        """The body was read, or will not be read any further."""
        received = Interval(phases.RECEIVING.name, self.received_time, time.monotonic())
        add_interval(self.intervals, received)
