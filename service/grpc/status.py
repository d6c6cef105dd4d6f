"""Converts errors, from the same tree as HTTP's, to gRPC status, message and trailing metadata."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote

from grpc import StatusCode

from service.errors import QuireError

# By the HTTP status of each kind of error.
STATUS_CODES: Final = {
    400: StatusCode.INVALID_ARGUMENT,
    401: StatusCode.UNAUTHENTICATED,
    402: StatusCode.RESOURCE_EXHAUSTED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    405: StatusCode.UNIMPLEMENTED,
    408: StatusCode.DEADLINE_EXCEEDED,
    413: StatusCode.RESOURCE_EXHAUSTED,
    415: StatusCode.INVALID_ARGUMENT,
    422: StatusCode.INVALID_ARGUMENT,
    426: StatusCode.UNIMPLEMENTED,
    429: StatusCode.RESOURCE_EXHAUSTED,
    499: StatusCode.CANCELLED,
    500: StatusCode.INTERNAL,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.DEADLINE_EXCEEDED,
}

# Clients accept 8 KiB of metadata by default; in transit each of these bytes may become three.
_MAX_MESSAGE_BYTES = 1024
_MAX_PARAM_CHARS = 256

Metadata = tuple[tuple[str, str], ...]


class Status(NamedTuple):
    code: StatusCode
    message: str
    trailing: Metadata

    @property
    def number(self) -> int:
        number: int = self.code.value[0]
        return number


def status_of(error: QuireError) -> Status:
    """Message and names may quote the request and are cut to what metadata can hold."""
    # An HTTP status may be missing from this table: it must still never become a success.
    code = STATUS_CODES.get(error.status, StatusCode.UNKNOWN)
    message = error.message.encode("utf-8", "replace")[:_MAX_MESSAGE_BYTES].decode(
        "utf-8", "ignore"
    )
    trailing = [("x-quire-reason", error.outcome)]
    if error.kind.code is not None:
        trailing.append(("quire-error-code", error.kind.code))
    if error.param is not None:
        param = quote(error.param[:_MAX_PARAM_CHARS], safe="_.-[]/ ", errors="replace")
        trailing.append(("quire-error-param", param))
    if error.retry_after is not None:
        trailing.append(("retry-after", str(error.retry_after)))
    return Status(code, message, tuple(trailing))
