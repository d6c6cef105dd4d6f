"""The deadline that a client sets for its request, by header."""

from __future__ import annotations

import math

from litestar.types import Scope

from service.errors import InvalidRequestError
from service.http.scope import header

_HEADER = "x-request-timeout"
_MOST_SECONDS = 86_400.0


def deadline_of(scope: Scope, received: float) -> float | None:
    """Return when the answer to a request must have begun, in the clock of ``received``; None if
    it may take any time. Raises InvalidRequestError.

    The vendors' clients send their own time limit as ``x-stainless-timeout``. It is not a deadline:
    it limits the silence on a connection, ten minutes by default, and not the whole request.
    """
    text = header(scope, _HEADER.encode())
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _MOST_SECONDS:
        raise InvalidRequestError(
            f"{_HEADER} must be the number of seconds within which the answer must begin: more "
            f"than 0, at most {_MOST_SECONDS:,.0f}.",
            param=_HEADER,
        )
    return received + seconds
