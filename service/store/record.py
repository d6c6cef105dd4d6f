"""A stored response, as the service knows it."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from service.store.tables import ResponseRow

JsonObject = dict[str, Any]


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """``body``: the response object's JSON. ``input``: the request's own items; ``context``: those
    before them. ``events``: the stream as it was sent, where one was kept. ``owner``: the digest of
    the key that made it. ``lease_until``: a response still in progress is alive until then."""

    id: str
    owner: str
    created_at: int
    expires_at: int
    status: str
    body: bytes
    input: list[JsonObject]
    context: list[JsonObject] = []
    events: bytes | None = None
    lease_until: int = 0

    @property
    def response(self) -> JsonObject:
        decoded: JsonObject = msgspec.json.decode(self.body)
        return decoded

    @property
    def conversation(self) -> list[JsonObject]:
        """All items up to and including the answer."""
        return [*self.context, *self.input, *self.response["output"]]


def to_row(record: StoredResponse) -> ResponseRow:
    """Compresses: for a thread."""
    packed_input = zlib.compress(msgspec.json.encode(record.input))
    context = zlib.compress(msgspec.json.encode(record.context))
    body = zlib.compress(record.body)
    events = None if record.events is None else zlib.compress(record.events)
    return ResponseRow(
        id=record.id,
        owner=record.owner,
        created_at=record.created_at,
        expires_at=record.expires_at,
        lease_until=record.lease_until,
        status=record.status,
        size=len(packed_input) + len(context) + len(body) + len(events or b""),
        body=body,
        input=packed_input,
        context=context,
        events=events,
    )


def from_row(row: ResponseRow) -> StoredResponse:
    return StoredResponse(
        id=row.id,
        owner=row.owner,
        created_at=row.created_at,
        expires_at=row.expires_at,
        lease_until=row.lease_until,
        status=row.status,
        body=zlib.decompress(row.body),
        input=msgspec.json.decode(zlib.decompress(row.input)),
        context=msgspec.json.decode(zlib.decompress(row.context)),
        events=None if row.events is None else zlib.decompress(row.events),
    )
