"""Errors whose message may be shown to the client that sent the request."""

from __future__ import annotations

UNTOLD = "internal engine error; see the log"


class TellableError(ValueError):
    """Something is wrong with one request, or follows from it. The message is written for the
    client; the messages of other exceptions may contain paths, addresses and other clients' data.
    """


class RefusedError(TellableError):
    """The request needs something unsupported; the client can correct that, the server cannot."""


def told(error: Exception) -> str:
    """Return the error message for the client."""
    if isinstance(error, RefusedError):
        return str(error)
    return f"{type(error).__name__}: {error}" if isinstance(error, TellableError) else UNTOLD
