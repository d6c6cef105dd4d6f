"""A stored response, as the service knows it."""

from __future__ import annotations

from typing import Any

import msgspec

RUNNING = ("queued", "in_progress")

JsonObject = dict[str, Any]


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """``body``: the response object's JSON. ``input``: the request's own items; ``context``: those
    before them; each a JSON list. ``events``: the stream as it was sent, where one was kept.
    ``owner``: the digest of the key that made it. ``abandoned``: it was still in progress, and
    whoever worked on it has not said so for as long as that counts."""

    id: str
    owner: str
    created_at: int
    expires_at: int
    status: str
    body: bytes
    input: bytes
    context: bytes = b"[]"
    events: bytes | None = None
    abandoned: bool = False

    @property
    def response(self) -> JsonObject:
        decoded: JsonObject = msgspec.json.decode(self.body)
        return decoded
