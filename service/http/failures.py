"""Turns every exception that leaves a route into a response in the format of its API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException

from observability.logging import get_logger
from service.errors import (
    BodyTooLargeError,
    InternalError,
    InvalidRequestError,
    MethodNotAllowedError,
    NotFoundError,
    QuireError,
    UpgradeRequiredError,
)
from service.http.scope import exchange_in, is_from_anthropics_client
from service.http.unrouted import asked_path, unrouted
from service.ids import Ids
from service.routes.route import WEBSOCKET
from service.routes.tables import PUBLIC
from service.serving.services import Services
from service.serving.unrouted import MOST_PATH_CHARS
from service.wire.error_shapes import shape_for

_SOCKETS = [route.path for route in PUBLIC if route.method == WEBSOCKET]
# Also without the version.
_SOCKET_PATHS = (*_SOCKETS, *(path.removeprefix("/v1") for path in _SOCKETS))

_log = get_logger()


def as_quire_error(
    error: Exception, *, method: str, path: str, near: Sequence[str] = ()
) -> QuireError:
    """Convert any exception. ``path`` is only returned to the caller who sent it; ``near``: routes
    that may be meant."""
    if isinstance(error, QuireError):
        return error
    if isinstance(error, HTTPException):
        if len(path) > MOST_PATH_CHARS:
            path = f"{path[:MOST_PATH_CHARS]}…"
        match error.status_code:
            case 404:
                meant = f"Did you mean {' or '.join(near)}? " if near else ""
                return NotFoundError(f"There is no {method} {path}. {meant}See /docs.")
            case 405 if method == "GET" and path in _SOCKET_PATHS:
                return UpgradeRequiredError(
                    f"GET {path} opens a WebSocket, but the Upgrade header is missing: a proxy may "
                    "have removed it. Send the header, or use POST."
                )
            case 405:
                allowed = _allowed(error)
                instead = f"; use {allowed}" if allowed else ""
                return MethodNotAllowedError(
                    f"{path} does not support {method}{instead}. See /docs."
                )
            case 413:
                return BodyTooLargeError("The body is too large.")
            case status if status < 500:
                return InvalidRequestError(error.detail)
    return InternalError("The server had an error while processing the request.")


def _allowed(error: HTTPException) -> str:
    """Return the methods that the path takes."""
    allow = (error.headers or {}).get("allow", "")
    return " or ".join(method for method in allow.split(", ") if method not in ("", "OPTIONS"))


def respond_to_failure(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The app's only exception handler."""
    scope = request.scope
    # Not request.url, which also depends on the Host header and so may contain anything.
    path = asked_path(scope)
    exchange = exchange_in(scope)
    matched = exchange is not None or not isinstance(error, HTTPException)
    near = () if matched else request.app.state.routes.near(path)
    answer = as_quire_error(error, method=request.method, path=path, near=near)
    if isinstance(answer, InternalError):
        _log.error("unexpected exception", path=path, exc_info=error)
    headers = answer.headers()
    if not matched:
        services: Services = request.app.state.services
        exchange = unrouted(scope, services.ids.new("req_"), services.telemetry)
    if exchange is not None:
        exchange.fail(answer)
        exchange.record.status = answer.status
        headers |= exchange.headers
    if isinstance(answer, MethodNotAllowedError) and isinstance(error, HTTPException):
        headers |= error.headers or {}
        if "GET" in headers.get("allow", "").split(", "):
            headers["allow"] += ", HEAD"
    if isinstance(answer, UpgradeRequiredError) and scope["http_version"] != "2":
        headers |= {"upgrade": "websocket", "connection": "upgrade"}
    if exchange is None:
        # The route is not counted; the client can still refer to its request's id.
        request_id = Ids().new("req_")
        headers |= {"x-request-id": request_id, "request-id": request_id}
    else:
        request_id = exchange.record.request_id
    if not matched and exchange is not None:
        exchange.close()
    shape = shape_for(
        scope["path"],
        by_anthropics_client=is_from_anthropics_client(scope),
        is_routed=matched,
    )
    return Response(
        content=shape(answer, request_id),
        status_code=answer.status,
        media_type="application/json",
        headers=headers,
    )
