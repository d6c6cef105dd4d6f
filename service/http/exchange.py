"""One HTTP exchange from first byte to last: its key, its record, its end.

``ExchangeMiddleware`` wraps every route. A route is closed to callers without a key unless it is
declared with ``opt={"open": True}``; one declared with ``opt={"route": …}`` is counted and logged
under that name, exactly once, whatever happens to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import time
import uuid
from collections.abc import Callable, Iterable

from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

from service.errors import QuireError, UnauthorizedError
from service.generation.admission import Drain
from service.generation.request import Generation
from service.http.headers import header
from service.http.origins import OriginRules
from service.pooling.request import PooledTexts
from service.telemetry.observer import Telemetry
from service.telemetry.record import RequestRecord
from service.tenants.caller import ANYBODY, Caller
from service.tenants.upload_room import FREE_BYTES, UploadRoom
from service.wire.decode import Ignored

EXCHANGE = "quire_exchange"


class KeyRing:
    """Knows the keys by their SHA-256 digests only. ``hurried``: those of ``keys`` whose requests
    may go ahead of others'; a key that is the only one may too."""

    def __init__(self, keys: Iterable[str], hurried: Iterable[str] = ()) -> None:
        self._digests = list(dict.fromkeys(_digest(key.encode()) for key in keys))
        self._hurried = frozenset(_digest(key.encode()) for key in hurried)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def check(self, authorization: bytes, api_key: bytes = b"") -> Caller:
        """Whose key ``Authorization: Bearer`` or else ``x-api-key`` bears. All keys are compared,
        each in constant time. Raises UnauthorizedError unless it is a known one."""
        key = presented_key(authorization, api_key)
        if not key:
            raise UnauthorizedError(
                "You didn't provide an API key. Send it as 'Authorization: Bearer KEY' or as "
                "'x-api-key: KEY'."
            )
        digest = _digest(key)
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(digest, known)
        if not found:
            raise UnauthorizedError("Incorrect API key provided.")
        shares = len(self._digests) > 1
        return Caller(
            owner=digest.hex(),
            shares=shares,
            may_hurry=not shares or digest in self._hurried,
        )


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class Exchange:
    """What one counted request has come to so far. ``patience`` is how many seconds its client may
    leave a write waiting, ``receive_timeout`` how many it may pause while it sends a body,
    ``keep_alive`` after how many of silence its stream gets a comment. ``ignored``: which parts of
    the request do nothing here; a header and the log line name them. ``upload_room``: where its
    body arrives; ``answer_room``: where what it keeps for its answer counts."""

    def __init__(
        self,
        record: RequestRecord,
        telemetry: Telemetry,
        *,
        patience: float = 60.0,
        keep_alive: float = 0.0,
        receive_timeout: float = 30.0,
        drain: Drain | None = None,
        refuse_unknown: bool = False,
        upload_room: UploadRoom | None = None,
        answer_room: UploadRoom | None = None,
    ) -> None:
        self.record = record
        self.caller = ANYBODY
        self.ignored = Ignored(refuse=refuse_unknown)
        self.patience = patience
        self.keep_alive = keep_alive
        self.receive_timeout = receive_timeout
        self.generation: Generation | None = None
        self.detached = False
        self.pooled: PooledTexts | None = None
        self.drain = drain
        self.upload_room = upload_room
        self.held = 0  # bytes beyond those that are free
        self._answer_room = answer_room
        self._holds = contextlib.ExitStack()
        self._telemetry = telemetry

    @property
    def headers(self) -> dict[str, str]:
        """For every response of this exchange."""
        # Anthropic's clients look for the second.
        headers = {"x-request-id": self.record.request_id, "request-id": self.record.request_id}
        if self.ignored.names:
            headers["x-quire-ignored"] = self.ignored.summary()
        if self.ignored.meant:
            headers["x-quire-hint"] = self.ignored.hint()
        if self.record.trace_id:
            headers["x-trace-id"] = self.record.trace_id
        if self.record.identity is not None:
            headers["traceresponse"] = self.record.identity.traceresponse
        return headers

    def began(self, generation: Generation) -> None:
        """The engine works for this exchange from now on."""
        self.generation = generation
        request, record = generation.request, self.record
        self._report_priority(request.priority)
        record.choices = len(generation.choices)
        record.max_tokens = request.params.max_tokens
        record.temperature = request.params.temperature
        record.top_p = request.params.top_p

    def began_pooling(self, pooled: PooledTexts) -> None:
        """The engine makes vectors for this exchange from now on."""
        self.pooled = pooled
        self._report_priority(pooled.request.priority)
        self.record.generates = False

    def hold(self, size: int) -> None:
        """So many bytes are kept for the answer, until this exchange has ended.

        Raises OverloadedError when all exchanges keep too much together.
        """
        if self._answer_room is not None:
            self._holds.enter_context(self._answer_room.arriving(self.caller))(size)
            self.held += max(0, size - FREE_BYTES)

    def _report_priority(self, asked: int) -> None:
        if self.caller.priority(asked) != asked:
            self.ignored.add("priority")

    def detach(self) -> Callable[[], None]:
        """The work goes on when the response has been sent. The caller must call what is returned
        when it ends."""
        self.detached = True
        return self._close

    def close(self) -> None:
        """The response has been sent, or cannot be; the end, unless the work goes on."""
        if not self.detached:
            self._close()

    def _close(self) -> None:
        self._holds.close()
        if self.drain is not None:
            self.drain.leave()
        self.finish()

    def succeed(self, outcome: str) -> None:
        self.record.outcome = outcome

    def fail(self, error: QuireError) -> None:
        """The answer, or the rest of the stream, is this error. The first outcome stays."""
        if not self.record.outcome:
            self.record.outcome = error.outcome
            self.record.error = type(error).__name__

    def cut(self, error: QuireError) -> None:
        """The answer was ready, but its client does not take it."""
        self.record.outcome = ""
        self.fail(error)

    def note_first_token(self, moment: float) -> None:
        if self.record.first_token_time is None:
            self.record.first_token_time = moment
            self._telemetry.first_token(self.record)

    def finish(self) -> None:
        """Nothing more can be sent. What has no outcome by now was left by its client."""
        record, generation = self.record, self.generation
        record.outcome = record.outcome or "client_gone"
        record.ended_time = time.monotonic()
        record.ignored = self.ignored.summary() or None
        if generation is not None:
            generation.close()
            record.prompt_tokens = generation.prompt_tokens
            record.cached_tokens = generation.cached_tokens
            record.output_tokens = generation.output_tokens
            record.sequences = generation.records()
            record.finish_reasons = [
                choice.finished.reason
                for choice in generation.choices
                if choice.finished is not None
            ]
            times = [choice.sequence.last_token_time for choice in generation.choices]
            record.last_token_time = max((t for t in times if t is not None), default=None)
        if self.pooled is not None:
            self.pooled.close()
            record.prompt_tokens = self.pooled.prompt_tokens
            record.cached_tokens = self.pooled.cached_tokens
            together = self.pooled.record()
            record.sequences = [] if together is None else [together]
        self._telemetry.request_finished(record)


class ExchangeMiddleware(ASGIMiddleware):
    """Outermost of a route: authenticates, opens the exchange and always ends it."""

    scopes = (ScopeType.HTTP,)

    def __init__(
        self,
        keys: KeyRing,
        origins: OriginRules,
        telemetry: Telemetry,
        drain: Drain,
        *,
        patience: float,
        keep_alive: float,
        receive_timeout: float,
        upload_room: UploadRoom,
        answer_room: UploadRoom,
        refuse_unknown: bool = False,
    ) -> None:
        self._keys = keys
        self._origins = origins
        self._patience = patience
        self._keep_alive = keep_alive
        self._receive_timeout = receive_timeout
        self._upload_room = upload_room
        self._answer_room = answer_room
        self._refuse_unknown = refuse_unknown
        self._telemetry = telemetry
        self._drain = drain

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        options = scope["route_handler"].opt
        route = options.get("route")
        if route is None:
            self._admit(scope, options)
            await next_app(scope, receive, send)
            return
        exchange = Exchange(
            _new_record(scope, route),
            self._telemetry,
            patience=self._patience,
            keep_alive=self._keep_alive,
            receive_timeout=self._receive_timeout,
            drain=self._drain,
            refuse_unknown=self._refuse_unknown,
            upload_room=self._upload_room,
            answer_room=self._answer_room,
        )
        scope["state"][EXCHANGE] = exchange
        self._telemetry.request_started(exchange.record)
        self._drain.enter()
        try:
            exchange.caller = self._admit(scope, options)
            await next_app(scope, receive, send)
        except QuireError as error:
            exchange.fail(error)
            exchange.record.status = error.status
            raise
        finally:
            exchange.close()

    def _admit(self, scope: Scope, options: dict[str, object]) -> Caller:
        self._origins.check(scope)
        if self._keys and not options.get("open"):
            return self._keys.check(header(scope, b"authorization"), api_key_header(scope))
        return ANYBODY


def presented_key(authorization: bytes, api_key: bytes) -> bytes:
    """The key of ``Authorization: Bearer``, or else of ``x-api-key``; empty if there is none."""
    scheme, _, key = authorization.partition(b" ")
    if scheme.lower() != b"bearer" or not key.strip():
        key = api_key
    return key.strip()


def key_owner(scope: Scope, keys: Iterable[str]) -> str:
    """``owner_of`` for what an HTTP request presents."""
    return owner_of(header(scope, b"authorization"), api_key_header(scope), keys)


def api_key_header(scope: Scope) -> bytes:
    """The key as Anthropic's clients send it, or else as Azure's do."""
    return header(scope, b"x-api-key") or header(scope, b"api-key")


def owner_of(authorization: bytes, api_key: bytes, keys: Iterable[str]) -> str:
    """The digest of the caller's key, to whom what it makes belongs; without keys all is
    everybody's."""
    return _digest(presented_key(authorization, api_key)).hex() if any(keys) else ""


def new_request_id() -> str:
    return f"req_{uuid.uuid4().hex}"


def _new_record(scope: Scope, route: str) -> RequestRecord:
    def text(name: bytes) -> str | None:
        return header(scope, name).decode("latin-1") or None

    return RequestRecord(
        request_id=new_request_id(),
        route=route,
        http_method=str(scope.get("method", "")),
        http_route=str(scope["path_template"]),
        received_time=time.monotonic(),
        received_wall_ns=time.time_ns(),
        client_request_id=text(b"x-request-id"),
        traceparent=text(b"traceparent"),
        tracestate=text(b"tracestate"),
    )
