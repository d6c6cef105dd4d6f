"""Says in the log when a port accepts no more connections, and when it accepts them again."""

from __future__ import annotations

import time

from observability.logging import get_logger

# Between two pauses that are logged: a server at its limit may pause many times a second.
_LOG_SECONDS = 60.0

_log = get_logger()


class PauseLog:
    """The HTTP server stops accepting at its limit by itself, and does not report it."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._is_logged = False
        self._logged_at = float("-inf")

    def note(self, connections: int, most: int, port: int) -> None:
        """Call it after each count of the open ``connections``; at most ``most`` are accepted. A
        pause that begins soon after a logged one is logged once ``_LOG_SECONDS`` have passed, if
        it lasts that long."""
        now = time.monotonic()
        if connections < most:
            if self._is_logged and self._since is not None:
                seconds = round(now - self._since, 3)
                _log.info("accepting connections again", port=port, after_seconds=seconds)
            self._since = None
            self._is_logged = False
            return
        if self._since is None:
            self._since = now
        if not self._is_logged and now - self._logged_at >= _LOG_SECONDS:
            self._is_logged = True
            self._logged_at = now
            _log.warning(
                "all connections of this API worker are in use", port=port, connections=connections
            )
