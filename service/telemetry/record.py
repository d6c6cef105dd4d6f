"""The record of one HTTP or gRPC request, the source of its metrics, span and log line.

Routes fill it in while the request is served; ``service.telemetry.requests`` reads it once, at the
end. It holds no content: no prompt, no output, no key (but the alias of one).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.messages import Finished
from observability.tracing import SpanIdentity


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
    finish_reasons: list[str] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    first_token_time: float | None = None
    last_token_time: float | None = None
    ended_time: float | None = None
    sequences: list[Finished] = field(default_factory=list)  # the engine's record per choice
