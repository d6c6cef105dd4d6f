"""Which of several replicas this server is."""

from __future__ import annotations

import socket


def identity(port: int) -> str:
    """Return ``HOST:PORT``. A pod's host name is its name, so no other replica has this, and it
    stays the same when the pod's container is restarted."""
    return f"{socket.gethostname()}:{port}"
