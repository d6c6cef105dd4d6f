"""The request object that routes receive."""

from __future__ import annotations

from functools import partial
from typing import Any

from litestar import Request, Response

from service.http.body import client_left, read_body
from service.http.scope import EXCHANGE, ROUTE_ROW
from service.routes.route import RouteRow
from service.serving.client import Client
from service.serving.exchange import Exchange
from service.serving.services import Services


class HttpCall(Request[Any, Any, Any]):
    """Litestar creates one for each request. Those of routes that are not counted have no
    ``exchange``."""

    __slots__ = ()

    @property
    def services(self) -> Services:
        services: Services = self.app.state.services
        return services

    @property
    def exchange(self) -> Exchange:
        exchange: Exchange = self.scope["state"][EXCHANGE]
        return exchange

    @property
    def requester(self) -> Client:
        return Client(self.services, self.exchange, partial(client_left, self.receive))

    async def read(self) -> bytes:
        """Read the body with ``read_body``. It may be large, so do not keep it."""
        route: RouteRow = self.scope["state"][ROUTE_ROW]
        limit = route.body.most_bytes(self.services.settings.max_body_bytes)
        return await read_body(self.scope, self.receive, limit=limit)

    def answer(self, body: bytes) -> Response[bytes]:
        """Return the whole answer as JSON; the exchange has succeeded. Raises OverloadedError when
        all exchanges together hold too much."""
        self.exchange.hold(len(body))
        self.exchange.succeed("stop")
        return respond(self.exchange, body)


def respond(exchange: Exchange, body: bytes) -> Response[bytes]:
    """Return a JSON answer with status 200."""
    exchange.record.status = 200
    return Response(
        content=body, status_code=200, media_type="application/json", headers=exchange.headers
    )
