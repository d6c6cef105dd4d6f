"""The certificate authorities that the dashboard trusts: those of SSL_CERT_FILE, or else of
SSL_CERT_DIR, or else certifi's."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable

import httpx

# After this they are read again for new connections, since a bundle may be replaced.
_SECONDS = 300.0

_log = logging.getLogger(__name__)


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
            now = self._clock()
            if self._context is None:
                self._context, self._read_at = httpx.create_ssl_context(), now
            elif now - self._read_at > _SECONDS:
                self._read_at = now
                try:
                    self._context = httpx.create_ssl_context()
                except OSError as error:  # such as a bundle that is being replaced
                    _log.warning("the certificate authorities were not read again: %s", error)
            return self._context


certificates = Certificates()
