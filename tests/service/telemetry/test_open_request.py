"""What the ledger keeps of an open request is what the next worker needs to end it."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from observability.open_requests import MAX_TEXT_BYTES
from observability.tracing import SpanIdentity, parse_traceparent
from service.telemetry.open_request import OpenRequest, decode_open, encode_open
from service.telemetry.record import RequestRecord
from tests.observability.traced import SAMPLED


def record(**changes: object) -> RequestRecord:
    made = RequestRecord(
        request_id="req_" + "0" * 32,
        route="chat_completions",
        http_method="POST",
        http_route="/v1/chat/completions",
        received_time=1000.5,
        received_wall_ns=10**18,
        client_request_id="theirs",
        model="m",
        operation="chat",
        stream=True,
        choices=2,
        max_tokens=100,
        temperature=0.5,
        top_p=0.9,
        status=200,
        first_token_time=1001.0,
    )
    parent = parse_traceparent(SAMPLED, None)
    assert parent is not None
    made.identity = SpanIdentity(parent.trace_id, 0xABC, sampled=True, parent=parent)
    made.trace_id, made.span_id = made.identity.trace_id_hex, made.identity.span_id_hex
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def test_a_record_comes_back_with_its_identity() -> None:
    before = record()
    after = decode_open(encode_open(before))
    assert before.identity is not None
    assert after.identity is not None
    assert after.identity.parent is not None
    assert after.identity.parent.is_remote
    assert after.identity.parent.span_id == before.identity.parent.span_id  # type: ignore[union-attr]
    kept = set(OpenRequest.__struct_fields__) - {"sampled", "parent_span_id"}
    for name in kept:
        assert getattr(after, name) == getattr(before, name), name
    assert dataclasses.replace(after.identity, parent=None) == dataclasses.replace(
        before.identity, parent=None
    )


def test_the_order_of_the_encoded_fields_is_the_structs() -> None:
    opened = msgspec.msgpack.decode(encode_open(record()), type=OpenRequest)
    assert (opened.request_id, opened.top_p, opened.sampled) == ("req_" + "0" * 32, 0.9, True)


@pytest.mark.parametrize("model", ["m", "m" * 250])
def test_the_longest_request_fits_without_the_callers_own_id(model: str) -> None:
    text = encode_open(record(client_request_id="x" * 1000, model=model))
    assert len(text) <= MAX_TEXT_BYTES
    assert decode_open(text).client_request_id is None


@pytest.mark.parametrize("text", [b"", b"\x90", b"\xc1", b"\x93\xa1a\xa1b\xa1c"])
def test_what_cannot_be_read_is_an_error(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_open(text)
