"""A stored response, as the service knows it."""

from __future__ import annotations

import msgspec

from service.conversation import JsonObject

RUNNING = ("queued", "in_progress")


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
    def background(self) -> bool:
        """Whether it was asked for in the background. The body may be megabytes: nothing else of it
        is made objects."""
        return msgspec.json.decode(self.body, type=_Asked).background

    def failed(self, error: JsonObject) -> StoredResponse:
        """The same, ended by this error."""
        response = msgspec.json.decode(self.body, type=dict[str, msgspec.Raw])
        body = msgspec.json.encode({**response, "status": "failed", "error": error})
        return msgspec.structs.replace(self, status="failed", body=body)


class _Asked(msgspec.Struct):
    background: bool
