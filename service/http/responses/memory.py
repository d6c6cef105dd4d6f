"""The memory of WebSocket connections: the last response of each as JSON, even if it was not
stored. Its total size is bounded; the oldest entries are dropped first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from service.http.responses.lifecycle import ResponseLifecycle
from service.preparation.jobs import History

# The key of a message's ``Exchanged`` in the state of its request's scope.
ON_CONNECTION = "quire_on_connection"
MOST_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class Exchanged:
    """Shared by a connection and the route that serves one of its messages. ``previous``: what the
    message continues, if only its connection has it. The route sets ``lifecycle``, or ``history``
    for a warm-up."""

    previous: History | None
    warms_up: bool
    response_id: str = ""
    lifecycle: ResponseLifecycle | None = None
    history: History | None = None

    def remembered(self) -> History | None:
        """Return what the next message may continue; None if there is nothing, or the store has
        it."""
        return self.history if self.lifecycle is None else self.lifecycle.unstored()


class _Kept(NamedTuple):
    response_id: str
    history: History


class Memories:
    """The last response of each connection."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._size = 0
        self._kept: dict[object, _Kept] = {}  # the oldest first

    def keep(self, connection: object, response_id: str, history: History) -> None:
        """Replace the connection's entry."""
        self.forget(connection)
        self._kept[connection] = _Kept(response_id, history)
        self._size += history.size
        while self._size > self._most:
            self.forget(next(iter(self._kept)))

    def find(self, connection: object, response_id: str | None) -> History | None:
        kept = self._kept.get(connection)
        return kept.history if kept is not None and kept.response_id == response_id else None

    def forget(self, connection: object) -> None:
        kept = self._kept.pop(connection, None)
        if kept is not None:
            self._size -= kept.history.size
