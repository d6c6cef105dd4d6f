"""A request's headers, as ASGI gives them."""

from __future__ import annotations

from litestar.types import Scope


def header(scope: Scope, name: bytes) -> bytes:
    """The value of a request header given in lower case; empty if it is not there."""
    return next((value for key, value in scope["headers"] if key == name), b"")
