"""What may be told of an error to whoever sent the request."""

from __future__ import annotations

UNTOLD = "internal engine error; see the log"


class TellableError(ValueError):
    """Something is wrong with one request, or follows from it. The message is written for its
    sender; that of any other exception may hold paths, addresses and what belongs to others."""


class RefusedError(TellableError):
    """The request asks for what cannot be done; its sender can mend that, the server cannot."""


def told(error: Exception) -> str:
    """What the sender of the request may know of it."""
    if isinstance(error, RefusedError):
        return str(error)
    return f"{type(error).__name__}: {error}" if isinstance(error, TellableError) else UNTOLD
