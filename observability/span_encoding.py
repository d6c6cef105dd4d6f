"""Finished spans as OTLP's protobuf messages.

The SDK's own encoder makes an object of each span, attribute and value: 30 us a span on the machine
this was written on, which a request with ten spans would pay for ten times. Here a span is joined
from bytes, most of them encoded before; 3 to 4 us.

Field numbers: opentelemetry/proto/trace/v1/trace.proto, common/v1/common.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache

from observability.schema import Attribute
from observability.tracing import AttributeValue, FinishedEvent, FinishedSpan, SpanLink

# Encoded attributes to keep. Few values vary much, and those are short.
_KEPT = 4096
# Not of longer ones, which may be ids (a request's takes 60): like times, these do not come again.
_MOST_KEPT_BYTES = 56

_time = struct.Struct("<BQ").pack
_times = struct.Struct("<BQBQ").pack
_double = struct.Struct("<Bd").pack
_HAS_IS_REMOTE, _IS_REMOTE = 0x100, 0x200
_STATUS_ERROR = b"\x18\x02"


def encode_place(
    *, trace_id: bytes, parent_id: bytes, parent_is_remote: bool, trace_state: str
) -> bytes:
    """Return what spans of one trace and one parent have in common. ``parent_id``: empty if there
    is none."""
    pieces = [b"\x0a\x10", trace_id]
    if trace_state:
        pieces.append(_text(b"\x1a", trace_state))
    if parent_id:
        pieces += b"\x22\x08", parent_id
    pieces.append(_REMOTE_PARENT if parent_is_remote else _NO_REMOTE_PARENT)
    return b"".join(pieces)


def encode_span(span: FinishedSpan, *, kind: int, place: bytes, span_id: bytes) -> bytes:
    """Return the span as an entry of ``ScopeSpans.spans``. ``kind``: as in the proto file;
    ``place``: from ``encode_place``."""
    pieces = [
        place,
        b"\x12\x08",
        span_id,
        _head(span.name, kind),
        _times(0x39, span.start_ns, 0x41, span.end_ns),
    ]
    if span.attributes:
        pieces += _attributes(b"\x4a", span.attributes)
    if span.events:
        pieces += [_event(event) for event in span.events]
    if span.links:
        pieces += [_link(link) for link in span.links]
    if span.error:
        pieces.append(_field(b"\x7a", _text(b"\x12", span.error) + _STATUS_ERROR))
    return _field(b"\x12", b"".join(pieces))


def encode_request(resource: bytes, scope: bytes, spans: list[bytes]) -> bytes:
    """Return an ``ExportTraceServiceRequest`` of encoded spans. ``resource``, ``scope``: messages,
    encoded."""
    scope_spans = _field(b"\x0a", scope) + b"".join(spans)
    return _field(b"\x0a", _field(b"\x0a", resource) + _field(b"\x12", scope_spans))


def _event(event: FinishedEvent) -> bytes:
    attributes = _attributes(b"\x1a", event.attributes)
    body = b"".join((_time(0x09, event.time_ns), _name_of_event(event.event.name), *attributes))
    return _field(b"\x5a", body)


@lru_cache(maxsize=64)
def _name_of_event(name: str) -> bytes:
    return _text(b"\x12", name)


def _link(link: SpanLink) -> bytes:
    ids = b"\x0a\x10%b\x12\x08%b" % (
        link.trace_id.to_bytes(16, "big"),
        link.span_id.to_bytes(8, "big"),
    )
    return _field(b"\x6a", ids + _LINK_FLAGS)


def _attributes(tag: bytes, values: Mapping[Attribute, AttributeValue | None]) -> list[bytes]:
    found = []
    for attribute, value in values.items():
        if value is not None:
            # With its type: 1 is equal to True.
            key = (tag, attribute, value, value.__class__)
            found.append(_kept.get(key) or _attribute(key))
    return found


_AttributeKey = tuple[bytes, Attribute, AttributeValue, type]
_kept: dict[_AttributeKey, bytes] = {}


def _attribute(key: _AttributeKey) -> bytes:
    tag, attribute, value, _ = key
    encoded = _field(tag, _name(attribute) + _field(b"\x12", _value(value)))
    if len(encoded) <= _MOST_KEPT_BYTES and not isinstance(value, float):
        if len(_kept) >= _KEPT:
            _kept.clear()
        _kept[key] = encoded
    return encoded


@lru_cache(maxsize=_KEPT)
def _name(attribute: Attribute) -> bytes:
    return _text(b"\x0a", attribute.name)


def _value(value: AttributeValue) -> bytes:
    if isinstance(value, str):
        return _text(b"\x0a", value)
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        return b"\x18" + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)
    if isinstance(value, float):
        return _double(0x21, value)
    return _field(b"\x2a", b"".join(_field(b"\x0a", _value(each)) for each in value))


@lru_cache(maxsize=256)
def _head(name: str, kind: int) -> bytes:
    return _text(b"\x2a", name) + b"\x30" + _varint(kind)


def _text(tag: bytes, text: str) -> bytes:
    return _field(tag, text.encode(errors="replace"))


def _field(tag: bytes, data: bytes) -> bytes:
    size = len(data)
    if size < 0x80:
        return b"%b%c%b" % (tag, size, data)
    return tag + _varint(size) + data


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _flags(bits: int) -> bytes:
    return b"\x85\x01" + bits.to_bytes(4, "little")


_NO_REMOTE_PARENT = _flags(_HAS_IS_REMOTE)
_REMOTE_PARENT = _flags(_HAS_IS_REMOTE | _IS_REMOTE)
# Of a link, whose field number is another.
_LINK_FLAGS = b"\x35" + _HAS_IS_REMOTE.to_bytes(4, "little")
