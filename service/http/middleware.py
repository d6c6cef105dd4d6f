"""Authenticates each request and manages its exchange.

``ExchangeMiddleware`` wraps every route. Who may use it, and the name under which it is counted and
logged, exactly once, however it ends, are in its row of the table (``service.routes``).
"""

from __future__ import annotations

from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

from service.admission.drain import Drain
from service.errors import NotFoundError, QuireError
from service.http.deadline import deadline_of
from service.http.forwarding import Forwarding
from service.http.origins import OriginRules
from service.http.scope import CALLER, EXCHANGE, ROUTE_ROW, api_key_header, header, new_record
from service.http.serves import route_of
from service.ids import Ids
from service.routes.route import RouteRow
from service.routes.tables import PUBLIC
from service.serving.access import Access
from service.serving.exchange import Exchange, OpenExchanges
from service.serving.metering import Metering
from service.telemetry.observer import Telemetry
from service.tenants.caller import Caller
from service.tenants.upload_room import UploadRoom


class ExchangeMiddleware(ASGIMiddleware):
    """The outermost layer of a route: authenticates, opens the exchange and always ends it."""

    scopes = (ScopeType.HTTP,)

    def __init__(
        self,
        access: Access,
        origins: OriginRules,
        telemetry: Telemetry,
        drain: Drain,
        *,
        patience: float,
        keep_alive: float,
        receive_timeout: float,
        upload_room: UploadRoom,
        answer_room: UploadRoom,
        exchanges: OpenExchanges | None = None,
        refuse_unknown: bool = False,
        metering: Metering | None = None,
        ids: Ids | None = None,
        forwarding: Forwarding | None = None,
    ) -> None:
        self._access = access
        self._origins = origins
        self.patience = patience
        self._keep_alive = keep_alive
        self._receive_timeout = receive_timeout
        self._upload_room = upload_room
        self._answer_room = answer_room
        self._exchanges = exchanges
        self._refuse_unknown = refuse_unknown
        self._metering = metering
        self._telemetry = telemetry
        self._drain = drain
        self._ids = ids or Ids()
        self._forwarding = forwarding

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        route = route_of(PUBLIC, scope)
        if route is None:
            raise NotFoundError("There is no such route.")
        scope["state"][ROUTE_ROW] = route
        if not route.counted:
            await self._admit(scope, route)
            await next_app(scope, receive, send)
            return
        problem: QuireError | None = None
        if self._forwarding is not None and route.live_id:
            try:
                if await self._forwarded(self._forwarding, route, scope, receive):
                    return
            except QuireError as error:
                problem = error  # of a request that is counted here
        exchange = Exchange(
            new_record(
                scope,
                self._ids.new("req_"),
                route.counted,
                template=str(scope["path_template"]),
                method=str(scope.get("method", "")),
            ),
            self._telemetry,
            patience=self.patience,
            keep_alive=self._keep_alive,
            receive_timeout=self._receive_timeout,
            drain=self._drain,
            refuse_unknown=self._refuse_unknown,
            upload_room=self._upload_room,
            answer_room=self._answer_room,
            exchanges=self._exchanges,
            metering=self._metering,
        )
        scope["state"][EXCHANGE] = exchange
        self._telemetry.request_started(exchange.record)
        self._drain.enter()
        try:
            exchange.identify(await self._admit(scope, route))
            if problem is not None:
                raise problem
            exchange.deadline = deadline_of(scope, exchange.record.received_time)
            await next_app(scope, receive, send)
        except QuireError as error:
            exchange.fail(error)
            exchange.record.status = error.status
            raise
        finally:
            exchange.close()

    async def _forwarded(
        self, forwarding: Forwarding, route: RouteRow, scope: Scope, receive: Receive
    ) -> bool:
        """True if another worker has served the request. Raises QuireError if it should have, or
        without a valid key, which takes no place among the forwarded requests."""
        worker = forwarding.owner(route, scope)
        if worker is None:
            return False
        caller = await self._admit(scope, route)
        return await forwarding.forward(
            worker,
            scope,
            receive,
            patience=self.patience,
            owner=caller.owner if caller.shares else "",
        )

    async def _admit(self, scope: Scope, route: RouteRow) -> Caller:
        self._origins.check(scope)
        inside: Caller | None = scope["state"].get(CALLER)
        if inside is not None:
            return self._access.permitted(route, inside)
        key = header(scope, b"authorization"), api_key_header(scope)
        return await self._access.check(route, *key)
