"""Every way in which a request can fail, and the error that a client of the OpenAI API gets.

    QuireError
    ├── InvalidRequestError       400  refused:invalid       the request itself is invalid
    │   ├── ContextTooLongError   400  refused:invalid       the prompt exceeds the model's context
    │   ├── WrongTaskError        400  refused:invalid       the model does not support this task
    │   └── NoThreadsError        400  refused:invalid       Anthropic's server-side conversations
    ├── UnauthorizedError         401  refused:unauthorized  no key, or one that has ended
    │   └── UnknownKeyError       401  refused:unauthorized  no such key
    ├── ForbiddenError            403  refused:unauthorized  a Host or Origin that is not allowed
    │   └── MissingScopeError     403  refused:unauthorized  the key may not use this route
    ├── NotFoundError             404  refused:not_found     no such path
    │   ├── ModelNotFoundError    404  refused:not_found     no such model
    │   └── PreviousNotFoundError 400  refused:not_found     no such previous_response_id
    ├── MethodNotAllowedError     405  refused:invalid       the path supports other methods
    ├── SlowSenderError           408  client_slow           the body did not arrive in time
    ├── BodyTooLargeError         413  refused:too_large     more bytes than --max-body-bytes
    ├── UnsupportedMediaTypeError 415  refused:invalid       a body's type or encoding
    ├── CrashingRequestError      422  refused:crashing      it crashes engines; do not retry
    ├── UpgradeRequiredError      426  refused:invalid       no WebSocket here; use HTTP
    ├── OverloadedError           429  refused:overloaded    capacity exists but is contended
    ├── DeadlineUnreachableError  429  refused:deadline      it would begin after its deadline
    ├── LimitError                429  refused:limit         a limit of the caller's key forbids it
    │   ├── RequestLimitError     429  refused:limit         requests per minute, or at once
    │   ├── TokenLimitError       429  refused:limit         tokens are used or reserved: wait
    │   ├── RequestOverLimitError 400  refused:limit         it needs more tokens than the limit
    │   └── QuotaError            402  refused:limit         the tokens of the day are used up
    ├── LoadingError              503  refused:loading       the model is not loaded yet
    ├── EngineUnavailableError    503  refused:engine        the engine is down or unresponsive
    ├── HelperKilledError         503  refused:preparation   a preparation process was killed
    ├── StoreUnavailableError     503  refused:store         the response store is unavailable
    │   └── NotStoredError        503  error:store           answered, but could not be stored
    ├── DrainingError             503  refused:draining      the server drains or shuts down
    ├── CutByShutdownError        503  error:shutdown        still running when the drain time ended
    ├── WorkerLostError           503  error:worker          the API worker that had it has ended
    ├── EngineFailedError         500  error:engine          the engine died or failed this sequence
    ├── SlowReaderError           499  client_slow           cut: it did not read what was sent
    ├── InternalError             500  error:internal        a bug in Quire
    ├── OperatorCancelError       499  cancelled             an operator cancelled it
    ├── ClientGoneError           499  client_gone           never sent: the client is gone
    ├── ExpiredError              504  refused:expired       its deadline passed while it waited
    └── DeadlineError             504  deadline              the caller's time limit has passed

``to_body`` returns OpenAI's format. ``reason`` is sent in the ``x-quire-reason`` header, so that a
gateway can distinguish errors with the same status.
"""

from __future__ import annotations

import copy
from typing import ClassVar, Final, NamedTuple, Self

import msgspec

# The same request would be refused again. Claude Code, for one, sends it ten more times after 401.
_FINAL_STATUSES: Final = frozenset({400, 401, 402, 403, 404, 405, 413, 415, 422, 426})


class Kind(NamedTuple):
    """The fixed part of an error: HTTP status, OpenAI's ``type`` and ``code``, our outcome."""

    status: int
    type: str
    code: str | None
    outcome: str


class ErrorDetail(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every refused or failed request, for any route."""

    error: ErrorDetail


class QuireError(Exception):
    """Base class. ``message`` says what to do; ``param`` names the field at fault; ``retry_after``
    is in seconds, None if there is no reliable estimate."""

    kind: ClassVar[Kind]

    def __init__(
        self, message: str, *, param: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after

    @property
    def status(self) -> int:
        return self.kind.status

    @property
    def outcome(self) -> str:
        return self.kind.outcome

    def to_raise(self) -> Self:
        """Return a copy, for code that raises an error that it also keeps: a raised error refers to
        that code by its traceback, so keeping the same one would make a cycle."""
        return copy.copy(self)

    def to_body(self) -> bytes:
        """Return the JSON body, ``{"error": {"message", "type", "param", "code"}}``."""
        detail = ErrorDetail(self.message, self.kind.type, self.param, self.kind.code)
        return msgspec.json.encode(ErrorBody(detail))

    def headers(self) -> dict[str, str]:
        """Return the error's response headers."""
        headers = {"x-quire-reason": self.outcome}
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        if self.status in _FINAL_STATUSES:
            headers["x-should-retry"] = "false"
        return headers


class InvalidRequestError(QuireError):
    kind = Kind(400, "invalid_request_error", None, "refused:invalid")


class ContextTooLongError(InvalidRequestError):
    """``tokens``: how many the prompt has, estimated if it is very long, and how many it may have;
    None if they were not counted."""

    tokens: tuple[int, int] | None = None
    kind = Kind(400, "invalid_request_error", "context_length_exceeded", "refused:invalid")


class WrongTaskError(InvalidRequestError):
    kind = Kind(400, "invalid_request_error", "unsupported_task", "refused:invalid")


class NoThreadsError(InvalidRequestError):
    kind = Kind(400, "invalid_request_error", "thread_unsupported_request", "refused:invalid")


class UnauthorizedError(QuireError):
    kind = Kind(401, "invalid_request_error", "invalid_api_key", "refused:unauthorized")

    def headers(self) -> dict[str, str]:
        return {**super().headers(), "www-authenticate": "Bearer"}


class UnknownKeyError(UnauthorizedError):
    """The key may have been made since the keys were last read."""


class NotFoundError(QuireError):
    kind = Kind(404, "invalid_request_error", "not_found", "refused:not_found")


class ModelNotFoundError(NotFoundError):
    kind = Kind(404, "invalid_request_error", "model_not_found", "refused:not_found")


class PreviousNotFoundError(NotFoundError):
    kind = Kind(400, "invalid_request_error", "previous_response_not_found", "refused:not_found")


class MethodNotAllowedError(QuireError):
    kind = Kind(405, "invalid_request_error", "method_not_allowed", "refused:invalid")


class ForbiddenError(QuireError):
    kind = Kind(403, "permission_error", "forbidden", "refused:unauthorized")


class MissingScopeError(ForbiddenError):
    kind = Kind(403, "permission_error", "missing_scope", "refused:unauthorized")


class SlowSenderError(QuireError):
    kind = Kind(408, "invalid_request_error", "request_timeout", "client_slow")

    def headers(self) -> dict[str, str]:
        # The rest of the body may still arrive, so the connection cannot be reused.
        return {**super().headers(), "connection": "close"}


class UnsupportedMediaTypeError(QuireError):
    kind = Kind(415, "invalid_request_error", "unsupported_media_type", "refused:invalid")


class UpgradeRequiredError(QuireError):
    kind = Kind(426, "invalid_request_error", "upgrade_required", "refused:invalid")


class BodyTooLargeError(QuireError):
    kind = Kind(413, "invalid_request_error", "request_too_large", "refused:too_large")


class CrashingRequestError(QuireError):
    kind = Kind(422, "invalid_request_error", "request_crashes_engine", "refused:crashing")


class OverloadedError(QuireError):
    """``waiting``: how many sequences waited when the queue had no place for this one."""

    kind = Kind(429, "rate_limit_error", "overloaded", "refused:overloaded")

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
        waiting: int | None = None,
    ) -> None:
        super().__init__(message, param=param, retry_after=retry_after)
        self.waiting = waiting


class DeadlineUnreachableError(QuireError):
    kind = Kind(429, "rate_limit_error", "deadline_unreachable", "refused:deadline")


class LimitState(NamedTuple):
    """What a key has left of its limits per minute, never below 0. ``reset``: seconds until all of
    it is free again."""

    requests_left: int = 0
    requests_reset: float = 0.0
    tokens_left: int = 0
    tokens_reset: float = 0.0


class LimitError(QuireError):
    """``state``: what is left."""

    kind = Kind(429, "requests", "rate_limit_exceeded", "refused:limit")

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message, param=param, retry_after=retry_after)
        self.state = LimitState()


class RequestLimitError(LimitError):
    kind = Kind(429, "requests", "rate_limit_exceeded", "refused:limit")


class TokenLimitError(LimitError):
    kind = Kind(429, "tokens", "rate_limit_exceeded", "refused:limit")


class RequestOverLimitError(LimitError):
    # Not 413, for which Claude Code shows a text about attachments instead of the message. A code
    # with "rate_limit" in it makes opencode repeat the request, whatever the status.
    kind = Kind(400, "invalid_request_error", "request_exceeds_limit", "refused:limit")


class QuotaError(LimitError):
    """Never with a ``retry_after``: Codex would wait that long before it repeats the request."""

    # opencode and Qwen Code repeat a 429 until they are killed; for 403, Claude Code says that it
    # could not authenticate.
    kind = Kind(402, "insufficient_quota", "insufficient_quota", "refused:limit")


class LoadingError(QuireError):
    kind = Kind(503, "server_error", "model_loading", "refused:loading")


class EngineUnavailableError(QuireError):
    kind = Kind(503, "server_error", "engine_unavailable", "refused:engine")


class HelperKilledError(QuireError):
    kind = Kind(503, "server_error", "preparation_unavailable", "refused:preparation")


class StoreUnavailableError(QuireError):
    kind = Kind(503, "server_error", "store_unavailable", "refused:store")


class NotStoredError(StoreUnavailableError):
    kind = Kind(503, "server_error", "store_unavailable", "error:store")


class CutByShutdownError(QuireError):
    kind = Kind(503, "server_error", "shutting_down", "error:shutdown")


class DrainingError(QuireError):
    kind = Kind(503, "server_error", "shutting_down", "refused:draining")

    def headers(self) -> dict[str, str]:
        # On a kept-alive connection the client's retry would reach this same process.
        return {**super().headers(), "connection": "close"}


class WorkerLostError(QuireError):
    kind = Kind(503, "server_error", "worker_lost", "error:worker")


class EngineFailedError(QuireError):
    kind = Kind(500, "server_error", "engine_error", "error:engine")


class InternalError(QuireError):
    kind = Kind(500, "server_error", "internal_error", "error:internal")


class SlowReaderError(QuireError):
    kind = Kind(499, "client_slow", "client_slow", "client_slow")


class OperatorCancelError(QuireError):
    kind = Kind(499, "cancelled", "cancelled", "cancelled")

    def headers(self) -> dict[str, str]:
        # OpenAI's and Anthropic's clients would otherwise send the request again.
        return {**super().headers(), "x-should-retry": "false"}


class ClientGoneError(QuireError):
    kind = Kind(499, "client_gone", "client_gone", "client_gone")


class DeadlineError(QuireError):
    kind = Kind(504, "timeout", "deadline_exceeded", "deadline")


class ExpiredError(QuireError):
    kind = Kind(504, "timeout", "deadline_exceeded", "refused:expired")
