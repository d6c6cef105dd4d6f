"""Connections that have not proved yet that they know the secret: few are kept at once, and a new
one takes the place of the oldest, so that idle ones cannot keep a host from joining."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

_MOST = 32
_MOST_OF_ONE_ADDRESS = 4


class Strangers:
    """Thread-safe. Each connection belongs to a thread that reads from it and closes it."""

    def __init__(self, most: int = _MOST, most_of_one_address: int = _MOST_OF_ONE_ADDRESS) -> None:
        self._most = most
        self._most_of_one_address = most_of_one_address
        self._lock = threading.Lock()
        self._addresses: dict[socket.socket, str] = {}  # the oldest first

    def add(self, connection: socket.socket, address: str) -> str | None:
        """Keep a connection from ``address``. If there are too many, of that address or of all,
        shut the oldest of them down, so that its thread ends. Returns the address of that one."""
        with self._lock:
            oldest = self._superfluous(address)
            self._addresses[connection] = address
            if oldest is None:
                return None
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
            return self._addresses.pop(oldest)

    def remove(self, connection: socket.socket) -> None:
        """Forget one that has said who it is, or is about to be closed; it may be forgotten
        already."""
        with self._lock:
            self._addresses.pop(connection, None)

    def _superfluous(self, address: str) -> socket.socket | None:
        of_address = [one for one, its in self._addresses.items() if its == address]
        if len(of_address) >= self._most_of_one_address:
            return of_address[0]
        return next(iter(self._addresses)) if len(self._addresses) >= self._most else None
