"""A request's ASGI scope: its headers, and what the layers around a route store in its state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from litestar.types import Scope

from service.serving.exchange import Exchange

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]

# Keys in the scope's state.
EXCHANGE = "quire_exchange"
SERVER_SEND = "quire_server_send"
CUT_CLIENT = "quire_cut_client"  # closes the client's connection


def exchange_in(scope: Scope) -> Exchange | None:
    """Return the exchange; None if no route matched the request or the route is not counted."""
    found: Exchange | None = scope["state"].get(EXCHANGE)
    return found


def header(scope: Scope, name: bytes) -> bytes:
    """Return the value of a request header, named in lower case; empty if it is missing."""
    return next((value for key, value in scope["headers"] if key == name), b"")


def client_address(scope: Scope) -> str | None:
    """Return the address that the listener sees: a proxy's, where one is in between."""
    client = scope.get("client")
    return None if client is None else client[0] or None


def api_key_header(scope: Scope) -> bytes:
    """Return the key as Anthropic's clients send it, or else as Azure's do."""
    return header(scope, b"x-api-key") or header(scope, b"api-key")
