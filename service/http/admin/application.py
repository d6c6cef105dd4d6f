"""The admin API's application, on a separate listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from litestar import Litestar, Request, Response
from litestar.datastructures import State
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.middleware import ASGIMiddleware
from litestar.plugins import PluginProtocol
from litestar.types import (
    ASGIApp,
    LifeSpanReceive,
    LifeSpanScope,
    LifeSpanSend,
    Message,
    Receive,
    Scope,
    Send,
)

from observability.admin_api import AdminScope
from observability.logging import get_logger
from service.admin.gate import AdminGate, Approach, permit
from service.admin.problem import MEDIA_TYPE, ProblemError, not_found, unavailable
from service.errors import QuireError
from service.http.admin.bundle import bundle
from service.http.admin.call import ACTOR, AdminCall, AdminDesk, approach_of
from service.http.admin.exports import (
    load_trace,
    record_load_trace,
    requests_csv,
    requests_parquet,
    stop_load_trace,
    usage_csv,
    usage_parquet,
)
from service.http.admin.faults import inject_fault, list_faults
from service.http.admin.feed import live_feed
from service.http.admin.keys import create_key, list_keys, revoke_key, rotate_key
from service.http.admin.kv import kv_map, kv_times, prefixes
from service.http.admin.operating import (
    audit_rows,
    cancel_request,
    change_settings,
    drain,
    hot_settings,
    load_run,
    log_level,
    resume,
    start_load,
    stop_load,
    tracing,
)
from service.http.admin.reading import (
    admin_metrics,
    one_request,
    overview,
    requests,
    series,
)
from service.http.admin.usage import usage
from service.http.body import read_body
from service.http.connections import Connections
from service.http.door import Door
from service.http.forwarding import Forwarding
from service.http.origins import OriginRules
from service.http.scope import FORWARDED, ROUTE_ROW
from service.http.serves import route_of, served_by
from service.routes.route import RouteRow
from service.routes.tables import ADMIN
from service.serving.connection_limits import ConnectionLimits
from service.turns import my_turn

ADMIN_HANDLERS = (
    *(overview, live_feed, series, requests, one_request, kv_map, kv_times, prefixes),
    *(cancel_request, hot_settings, change_settings, drain, resume, log_level, tracing),
    admin_metrics,
    *(load_run, start_load, stop_load, audit_rows, bundle, usage),
    *(requests_csv, requests_parquet, usage_csv, usage_parquet),
    *(list_keys, create_key, rotate_key, revoke_key),
    *(record_load_trace, stop_load_trace, load_trace),
    *(list_faults, inject_fault),
)
_READING = ("GET", "HEAD")

_log = get_logger()


class AdminApp(Litestar):
    """Checks every request before its route is looked for, so that strangers learn nothing of what
    there is."""

    door: Door
    gate: AdminGate
    desk: AdminDesk

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return plugins  # see service.http.application.App

    async def __call__(
        self,
        scope: Scope | LifeSpanScope,
        receive: Receive | LifeSpanReceive,
        send: Send | LifeSpanSend,
    ) -> None:
        # The scope determines which of the types it is.
        arguments: tuple[Any, Any, Any] = (scope, receive, send)
        match str(scope["type"]):
            case "http":
                await self.door.serve(self._checked, *arguments)
            case "websocket":
                await _refuse_socket(*arguments)
            case _:
                await super().__call__(*arguments)

    async def _checked(self, scope: Any, receive: Any, send: Any) -> None:
        approach = approach_of(scope)
        result = ""

        async def noting(message: Message) -> None:
            nonlocal result
            if message["type"] == "http.response.start":
                result = _result_of(message["status"])
            await send(message)

        try:
            try:
                actor = self.gate.check(approach)
            except ProblemError as problem:
                if scope["method"] not in _READING:
                    self._note_refusal(approach, scope, problem)
                await _send_problem(problem, noting)
                return
            scope["state"][ACTOR] = actor
            await my_turn()
            await super().__call__(scope, receive, noting)
        finally:
            if FORWARDED not in scope["state"]:  # else by the worker that the client asked
                self.desk.services.telemetry.admin_request(_needed(scope), result or "client_gone")

    def _note_refusal(self, approach: Approach, scope: Any, problem: ProblemError) -> None:
        actor = self.gate.identify(approach)
        action = f"{scope['method']} {scope['path'][:64]}"
        self.desk.audit.refuse(actor, approach.address, action, problem.code)


class _Gatekeeper(ASGIMiddleware):
    """Wraps every route: lets those in whose key has its scope."""

    scopes = (ScopeType.HTTP,)

    def __init__(self, forwarding: Forwarding | None, patience: float) -> None:
        """``forwarding``: None if there is only one worker. ``patience``: seconds that a client may
        block one write of what another worker answers."""
        self._forwarding = forwarding
        self._patience = patience

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        route = route_of(ADMIN, scope)
        if route is None:
            raise not_found("There is no such route.")
        scope["state"][ROUTE_ROW] = route
        permit(scope["state"][ACTOR], route)
        forwarding = self._forwarding
        worker = None if forwarding is None else forwarding.owner(route, scope)
        if forwarding is None or worker is None:
            await next_app(scope, receive, send)
            return
        body = await read_body(scope, receive, limit=route.body.most_bytes(0))
        if not await forwarding.forward(
            worker, scope, receive, patience=self._patience, body=body, send=send
        ):
            raise unavailable(f"API worker {worker}, which handles this, does not answer; retry.")


def make_admin_app(
    desk: AdminDesk,
    *,
    on_startup: Callable[[], Awaitable[None]],
    on_shutdown: Callable[[], Awaitable[None]],
) -> AdminApp:
    """``state.desk`` holds what routes use, ``state.connections`` monitors open connections."""
    ADMIN.check_served(served_by(ADMIN_HANDLERS))
    options = desk.services.settings
    connections = Connections(
        idle_timeout=options.idle_timeout,
        first_timeout=options.receive_timeout,
        most=ConnectionLimits.of(options).admin,
        warns=False,  # the public API's warn
    )
    peers = desk.services.peers
    forwarding = Forwarding(peers, desk.services.drain) if peers else None
    app = AdminApp(
        route_handlers=list(ADMIN_HANDLERS),
        middleware=[_Gatekeeper(forwarding, options.slow_reader_timeout)],
        exception_handlers={Exception: _respond_to_failure},
        on_startup=[on_startup],
        on_shutdown=[on_shutdown],
        state=State({"desk": desk, "connections": connections}),
        request_class=AdminCall,
        openapi_config=None,
        logging_config=None,
        debug=False,
    )
    app.desk = desk
    app.gate = AdminGate(
        options.admin_keys, host=options.admin_host, allowed_hosts=options.allowed_hosts
    )
    app.door = Door(
        OriginRules(origins=(), hosts=None, guarded=False),  # the gate is stricter
        connections,
        versioned=frozenset(),
        patience=options.slow_reader_timeout,
    )
    return app


def _needed(scope: Any) -> str:
    """Return the scope that a request needs; of one that reached no route, by its method."""
    route: RouteRow | None = scope["state"].get(ROUTE_ROW)
    if route is not None:
        return route.scope.value
    return (AdminScope.READ if scope["method"] in _READING else AdminScope.OPERATE).value


def _result_of(status: int) -> str:
    return "done" if status < 400 else "refused" if status < 500 else "failed"


def problem_response(problem: ProblemError) -> Response[bytes]:
    return Response(
        content=problem.to_body(),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers={"cache-control": "no-store", **problem.headers},
    )


def as_problem(error: Exception, *, method: str, path: str) -> ProblemError:
    """Convert any exception. ``path`` is only returned to the caller who sent it."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, QuireError):
        code = error.kind.code or error.outcome.rpartition(":")[2]
        return ProblemError(
            error.status, code, error.message, field=error.param, headers=error.headers()
        )
    if isinstance(error, HTTPException) and error.status_code < 500:
        if error.status_code == 405:
            return ProblemError(405, "method", f"{path} does not support {method}.")
        if error.status_code == 404:
            return ProblemError(
                404, "not_found", f"There is no {method} {path}. See docs/admin.md."
            )
        return ProblemError(error.status_code, "invalid", error.detail)
    return ProblemError(500, "internal", "The server had an error while processing the request.")


def _respond_to_failure(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The app's only exception handler."""
    scope = request.scope
    problem = as_problem(error, method=request.method, path=scope["path"][:128])
    if problem.status == 500:
        _log.error("unexpected exception in the admin API", exc_info=error)
    actor = scope["state"].get(ACTOR)
    if actor is not None and request.method not in _READING:
        desk: AdminDesk = request.app.state.desk
        action = f"{request.method} {scope['path'][:64]}"
        desk.audit.refuse(actor.alias, actor.address, action, problem.code)
    return problem_response(problem)


async def _send_problem(problem: ProblemError, send: Any) -> None:
    """Respond outside of any route."""
    body = problem.to_body()
    headers = {
        "content-type": MEDIA_TYPE,
        "content-length": str(len(body)),
        "cache-control": "no-store",
        **problem.headers,
    }
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _refuse_socket(scope: Any, receive: Any, send: Any) -> None:
    await receive()  # websocket.connect
    await send({"type": "websocket.close", "code": 1008, "reason": ""})
