"""Turns every exception that leaves a route into a response in the format of its API."""

from __future__ import annotations

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
)
from service.http.scope import exchange_in
from service.serving.exchange import new_request_id
from service.wire.error_shapes import shape_for

_log = get_logger()


def as_quire_error(error: Exception, *, method: str, path: str) -> QuireError:
    """Convert any exception. ``path`` is only returned to the caller who sent it."""
    if isinstance(error, QuireError):
        return error
    if isinstance(error, HTTPException):
        match error.status_code:
            case 404:
                return NotFoundError(f"There is no {method} {path}; see /docs.")
            case 405:
                return MethodNotAllowedError(f"{path} does not support {method}; see /docs.")
            case 413:
                return BodyTooLargeError("The body is too large.")
            case status if status < 500:
                return InvalidRequestError(error.detail)
    return InternalError("The server had an error while processing the request.")


def respond_to_failure(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The app's only exception handler."""
    # Not request.url, which also depends on the Host header and so may contain anything.
    path = request.scope["path"]
    answer = as_quire_error(error, method=request.method, path=path)
    if isinstance(answer, InternalError):
        _log.error("unexpected exception", path=path, exc_info=error)
    exchange = exchange_in(request.scope)
    headers = answer.headers()
    if exchange is not None:
        exchange.fail(answer)
        exchange.record.status = answer.status
        headers |= exchange.headers
    if isinstance(answer, MethodNotAllowedError) and isinstance(error, HTTPException):
        headers |= error.headers or {}
        if "GET" in headers.get("allow", "").split(", "):
            headers["allow"] += ", HEAD"
    if exchange is None:
        # No route matched, so the request is not counted; the client can still refer to its id.
        request_id = new_request_id()
        headers |= {"x-request-id": request_id, "request-id": request_id}
    else:
        request_id = exchange.record.request_id
    return Response(
        content=shape_for(path)(answer, request_id),
        status_code=answer.status,
        media_type="application/json",
        headers=headers,
    )
