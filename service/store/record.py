"""A stored response, as the service sees it."""

from __future__ import annotations

import msgspec

from service.conversation import JsonObject

RUNNING = ("queued", "in_progress")


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """``body``: the response object's JSON. ``input``: the request's own items; ``context``: those
    before them; each a JSON list. ``events``: the stream as it was sent, if it was kept. ``owner``:
    the digest of the key that created it. ``abandoned``: it was still in progress, and its lease
    has expired. ``is_update``: it was stored before. ``must_exist``: it is only written
    if the database still has it, because a deletion may have left no trace."""

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
    is_update: bool = False
    must_exist: bool = False

    @property
    def background(self) -> bool:
        """True if it is a background response. Decodes only this field, because the body may be
        megabytes."""
        return msgspec.json.decode(self.body, type=_Asked).background

    def failed(self, error: JsonObject) -> StoredResponse:
        """Return a copy that ended with this error."""
        response = msgspec.json.decode(self.body, type=dict[str, msgspec.Raw])
        body = msgspec.json.encode({**response, "status": "failed", "error": error})
        return msgspec.structs.replace(self, status="failed", body=body)


class _Asked(msgspec.Struct):
    background: bool
