"""What a worker's ledger keeps about each open request, so that the next worker can end it in its
place: identity and times, no content."""

from __future__ import annotations

import operator

import msgspec

from observability.open_requests import MAX_TEXT_BYTES
from observability.tracing import SpanContext, SpanIdentity, TraceFlags
from service.telemetry.record import RequestRecord


class OpenRequest(msgspec.Struct, frozen=True, array_like=True):
    """Fields of ``RequestRecord`` by their names there. Of the identity: whether the trace is
    exported, and the caller's span (0: none)."""

    request_id: str
    route: str
    http_method: str
    http_route: str
    received_time: float
    received_wall_ns: int
    client_request_id: str | None
    key: str | None
    client_address: str | None
    user_agent: str | None
    trace_id: str
    span_id: str
    model: str
    operation: str
    stream: bool
    choices: int
    generates: bool
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    status: int
    grpc_status: int | None
    first_token_time: float | None
    sampled: bool = False
    parent_span_id: int = 0


_RECORDED = OpenRequest.__struct_fields__[:-2]
_of_record = operator.attrgetter(*_RECORDED)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(OpenRequest)


def encode_open(record: RequestRecord) -> bytes:
    """Return at most ``MAX_TEXT_BYTES``: the caller's own id, the only long field, is left out if
    there is no room for it."""
    identity = record.identity
    parent = None if identity is None else identity.parent
    values = [
        *_of_record(record),
        identity is not None and identity.sampled,
        0 if parent is None else parent.span_id,
    ]
    text = _encoder.encode(values)  # as the struct is encoded, but without making one
    if len(text) > MAX_TEXT_BYTES:
        values[_RECORDED.index("client_request_id")] = None
        text = _encoder.encode(values)
    return text


def decode_open(text: bytes) -> RequestRecord:
    """Raises msgspec.DecodeError for a text of another version."""
    opened = _decoder.decode(text)
    record = RequestRecord(**{name: getattr(opened, name) for name in _RECORDED})
    trace_id = int(opened.trace_id, 16)
    parent = None
    if opened.parent_span_id:
        flags = TraceFlags(int(opened.sampled))
        parent = SpanContext(trace_id, opened.parent_span_id, is_remote=True, trace_flags=flags)
    record.identity = SpanIdentity(trace_id, int(opened.span_id, 16), opened.sampled, parent)
    record.traced = opened.sampled
    return record
