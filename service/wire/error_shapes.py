"""The error format of each vendor's API, generated from one tree of errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from service.errors import ContextTooLongError, NoThreadsError, QuireError

ErrorShape = Callable[[QuireError, str], bytes]
"""Encodes an error and the request's id as the body of the response."""

# Anthropic's error types, by HTTP status; other client errors are invalid_request_error.
_ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicErrorDetails(msgspec.Struct, frozen=True):
    """The details that Anthropic's clients act on automatically."""

    error_code: str
    unsupported: tuple[str, ...]


class AnthropicErrorDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    message: str
    details: AnthropicErrorDetails | None = None


class AnthropicErrorBody(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    error: AnthropicErrorDetail
    request_id: str


def openai_shape(error: QuireError, request_id: str) -> bytes:
    return error.to_body()


def anthropic_shape(error: QuireError, request_id: str) -> bytes:
    details = None
    if isinstance(error, NoThreadsError):
        details = AnthropicErrorDetails(error.kind.code or "", ("thread",))
    detail = AnthropicErrorDetail(anthropic_type(error), _anthropic_message(error), details)
    return msgspec.json.encode(AnthropicErrorBody(detail, request_id))


def _anthropic_message(error: QuireError) -> str:
    if isinstance(error, ContextTooLongError) and error.tokens is not None:
        counted, most = error.tokens
        # Clients recognize these words, and then shorten the conversation themselves.
        return f"prompt is too long: {counted} tokens > {most} maximum. Shorten the {error.param}."
    if error.param and "." in error.param and error.param not in error.message:
        return f"{error.param}: {error.message}"  # their errors have no field for the place
    return error.message


def anthropic_type(error: QuireError) -> str:
    fallback = "api_error" if error.status >= 500 else "invalid_request_error"
    return _ANTHROPIC_TYPES.get(error.status, fallback)


def shape_for(
    path: str, *, by_anthropics_client: bool = False, is_routed: bool = True
) -> ErrorShape:
    """Select the format by path, so that unknown paths are also answered in their API's format.
    ``by_anthropics_client``: decides for the list of models, which both APIs have, and for requests
    that no route takes (``is_routed`` is false)."""
    if by_anthropics_client and not is_routed:
        return anthropic_shape
    if path.startswith("/v1/models"):
        return anthropic_shape if by_anthropics_client else openai_shape
    return anthropic_shape if path.startswith("/v1/messages") else openai_shape
