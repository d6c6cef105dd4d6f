"""The certificate authorities that the dashboard trusts: the system's, or those that SSL_CERT_FILE
and SSL_CERT_DIR name."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable

import httpx

# After this they are read again, since a bundle may be replaced.
_SECONDS = 300.0


class Certificates:
    """For all connections of this process. An httpx client that is made without them reads the
    bundle itself, for http:// too: 20 to 50 ms of CPU time. Safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = 0.0
        self._context: ssl.SSLContext | None = None

    def __call__(self) -> ssl.SSLContext:
        with self._lock:
            if self._context is None or self._clock() - self._read_at > _SECONDS:
                self._context, self._read_at = httpx.create_ssl_context(), self._clock()
            return self._context


certificates = Certificates()
