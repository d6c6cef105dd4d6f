"""The calls that are generating now, so that another call with the same key can abort one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from service.errors import ClientGoneError, NotFoundError
from service.generation.request import Generation


@dataclass(frozen=True, slots=True)
class _Entry:
    owner: str
    generation: Generation


class RunningCalls:
    """Calls by the server's own request ids: ids chosen by callers would not be unique."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    @contextlib.contextmanager
    def holding(self, owner: str, generation: Generation) -> Iterator[None]:
        """``owner``: the digest of the caller's key."""
        request_id = generation.request.request_id
        self._entries[request_id] = _Entry(owner, generation)
        try:
            yield
        finally:
            del self._entries[request_id]

    def abort(self, request_id: str, owner: str) -> None:
        """Abort a call and free its blocks at once. Raises NotFoundError, also for another key's
        call."""
        entry = self._entries.get(request_id)
        if entry is None or entry.owner != owner:
            raise NotFoundError("No such request is running.", param="request_id")
        entry.generation.fail(ClientGoneError("The request was aborted."))
