"""What WebSocket connections remember: the last response of each, as JSON, although it was not
stored. All of them together have a bound; what was kept longest gives way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from service.http.responses.lifecycle import ResponseLifecycle
from service.preparation.jobs import History

# In the scope's state of a request that came as a message: its ``Exchanged``.
ON_CONNECTION = "quire_on_connection"
MOST_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class Exchanged:
    """Between a connection and the route that serves a message of it. ``previous``: what the
    message continues, if only its connection knows that. The route sets ``lifecycle``, or
    ``history`` for a warm-up."""

    previous: History | None
    warms_up: bool
    response_id: str = ""
    lifecycle: ResponseLifecycle | None = None
    history: History | None = None

    def remembered(self) -> History | None:
        """What the next message may continue; None where there is nothing, or the store has it."""
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
        """In place of what the connection had."""
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
