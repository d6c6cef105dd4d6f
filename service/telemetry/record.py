"""The record of one HTTP or gRPC request, the source of its metrics, spans and log line.

Routes fill it in while the request is served; ``service.telemetry.requests`` reads it once, at the
end. It holds no content: no prompt, no output, no key (but the alias of one).
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from engine.messages import Finished, PrefixMiss
from observability import phases
from observability.tracing import SpanIdentity
from service.engine.happenings import Happening, LongStep
from service.generation.request import MessagePlace


class Interval(NamedTuple):
    """Part of a phase that ran from ``begin`` to ``end``. ``phase``: its name."""

    phase: str
    begin: float
    end: float


class Preparing(Protocol):
    """A request while it is prepared. ``reached``: the phase that a process works on now."""

    @property
    def reached(self) -> Interval | None: ...


_MOST_INTERVALS = 64
_MOST_WAITS = 16  # of a request that are kept one by one
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
    that ends within a millisecond has not waited for anybody. ``waiting_since``: when the write
    began that has not ended."""

    seconds: float = 0.0
    begin: float = 0.0
    end: float = 0.0
    waits: list[tuple[float, float]] = field(default_factory=list)  # a heap: seconds, begin
    waiting_since: float | None = None

    def waited(self, begin: float, end: float) -> None:
        """Add one write's wait."""
        self.waiting_since = None
        if end - begin < _SHORTEST_WAIT_SECONDS:
            return
        if not self.seconds:
            self.begin = begin
        self.seconds += end - begin
        self.end = end
        if len(self.waits) < _MOST_WAITS:
            heapq.heappush(self.waits, (end - begin, begin))
        else:
            heapq.heappushpop(self.waits, (end - begin, begin))

    def so_far(self, now: float) -> Flush:
        """With the write that has not ended."""
        if self.waiting_since is None:
            return self
        found = replace(self, waits=list(self.waits))
        found.waited(self.waiting_since, now)
        return found

    @property
    def longest(self) -> list[tuple[float, float]]:
        """When the longest waits began, and how long they were."""
        return [(begin, seconds) for seconds, begin in self.waits]


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
    identity: SpanIdentity | None = None  # the same ids, and what the sampler decided
    traced: bool = False  # its trace is exported, as far as is known by now
    kept_because: str | None = None  # one of kept_traces.KeptBecause, if not sampled

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
    limited_by: str | None = None  # what limited the server then, see admin_api.Condition
    asked: str | None = None  # what no route takes: the path, cut and made safe to log
    finish_reasons: list[str] = field(default_factory=list)
    prompt_tokens: int = 0
    prompt_tokens_computed: int = 0  # so far
    cached_tokens: int = 0
    prefix_miss: PrefixMiss | None = None  # why the prefix cache had no more of the prompt
    miss_place: MessagePlace | None = None  # of the first token that it did not have
    output_tokens: int = 0  # generated, also by beams that are not part of the answer
    reasoning_tokens: int = 0  # of them
    itl_max: float | None = None  # the longest time between two tokens of a choice
    happenings: list[Happening] = field(default_factory=list)  # to the request as a whole
    choices_happenings: list[tuple[int, Happening]] = field(default_factory=list)
    longest_steps: list[LongStep] = field(default_factory=list)  # of each choice's life
    intervals: list[Interval] = field(default_factory=list)  # of receive, render and tokenize
    prepared_time: float | None = None  # what the engine is to do was known, or was refused
    flush: Flush = field(default_factory=Flush)
    first_token_time: float | None = None
    last_token_time: float | None = None
    ended_time: float | None = None
    sequences: list[Finished] = field(default_factory=list)  # the engine's record per choice
    is_generated: bool = False  # the engine has nothing more to do for it

    # Of a live request only.
    preparing: Preparing | None = None
    update: Callable[[], None] | None = None  # brings what the engine does up to date

    def received_body(self) -> None:
        """The body was read, or will not be read any further."""
        received = Interval(phases.RECEIVING.name, self.received_time, time.monotonic())
        add_interval(self.intervals, received)
