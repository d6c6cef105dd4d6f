"""A request's ASGI scope: its headers, and what the layers around a route store in its state."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from litestar.types import Scope

from engine.addresses import plain_address
from service.serving.exchange import Exchange
from service.telemetry.record import RequestRecord

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]

# Keys in the scope's state.
EXCHANGE = "quire_exchange"
ROUTE_ROW = "quire_route"  # the row of the table that it has matched
SERVER_SEND = "quire_server_send"
CALLER = "quire_caller"  # of a request that the server sends to itself
ASKED_PATH = "quire_asked_path"  # before the version was added
CUT_CLIENT = "quire_cut_client"  # closes the client's connection
CLIENT_STAYS = "quire_client_stays"  # returns whether the client's connection is open
ASKED_HEAD = "quire_asked_head"  # of a HEAD request, served as GET: the server's own send
FORWARDED = "quire_forwarded"  # by another worker, so it is served here in any case


def exchange_in(scope: Scope) -> Exchange | None:
    """Return the exchange; None if no route matched the request or the route is not counted."""
    found: Exchange | None = scope["state"].get(EXCHANGE)
    return found


def new_record(
    scope: Scope, request_id: str, route: str, *, template: str, method: str
) -> RequestRecord:
    """Return the record of a request whose headers have just been read. ``template``: the route's
    path."""

    def text(name: bytes) -> str | None:
        return header(scope, name).decode("latin-1") or None

    return RequestRecord(
        request_id=request_id,
        route=route,
        http_method=method,
        http_route=template,
        received_time=time.monotonic(),
        received_wall_ns=time.time_ns(),
        client_request_id=text(b"x-request-id"),
        traceparent=text(b"traceparent"),
        tracestate=text(b"tracestate"),
        client_address=client_address(scope),
        user_agent=text(b"user-agent"),
    )


def header(scope: Scope, name: bytes) -> bytes:
    """Return the value of a request header, named in lower case; empty if it is missing."""
    return next((value for key, value in scope["headers"] if key == name), b"")


def is_from_anthropics_client(scope: Scope) -> bool:
    return bool(header(scope, b"anthropic-version"))


def client_address(scope: Scope) -> str | None:
    """Return the address that the listener sees: a proxy's, where one is in between."""
    client = scope.get("client")
    return None if client is None else plain_address(client[0]) or None


def api_key_header(scope: Scope) -> bytes:
    """Return the key as Anthropic's clients send it, or else as Azure's do."""
    return header(scope, b"x-api-key") or header(scope, b"api-key")
