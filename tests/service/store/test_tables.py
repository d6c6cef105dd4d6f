"""A response comes back from its row as it was, and its row counts the bytes it takes."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.store.record import StoredResponse
from service.store.tables import ResponseRow, from_row, to_row


def stored(body: bytes, input_: bytes, context: bytes, events: bytes | None) -> StoredResponse:
    return StoredResponse(
        id="resp_1",
        owner="0a" * 32,
        created_at=1,
        expires_at=1 << 40,
        status="completed",
        body=body,
        input=input_,
        context=context,
        events=events,
    )


@given(st.binary(), st.binary(), st.binary(), st.none() | st.binary())
def test_what_was_stored_is_read(
    body: bytes, input_: bytes, context: bytes, events: bytes | None
) -> None:
    record = stored(body, input_, context, events)
    row = to_row(record)
    assert from_row(ResponseRow(**row)) == record
    parts = [row[name] for name in ("body", "input", "context", "events")]
    kept = [part for part in parts if part is not None]
    assert row["size"] == sum(map(len, kept))
    assert b"".join(map(zlib.decompress, kept)) == body + input_ + context + (events or b"")


def test_what_repeats_takes_little_room() -> None:
    assert to_row(stored(b"word " * 20_000, b"[]", b"[]", None))["size"] < 1000


@pytest.mark.parametrize("events", [None, b""])
def test_no_stream_is_not_an_empty_one(events: bytes | None) -> None:
    row = ResponseRow(**to_row(stored(b"{}", b"[]", b"[]", events)))
    assert from_row(row).events == events


def test_a_new_row_has_no_lease() -> None:
    assert to_row(stored(b"{}", b"[]", b"[]", None))["lease_until"] == 0
