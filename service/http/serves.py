"""Registers handlers as those of routes in the tables, which have all other facts about them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from litestar.handlers import HTTPRouteHandler
from litestar.types import Scope

from service.routes.route import RouteRow, RouteTable
from service.routes.tables import ADMIN, PUBLIC

_ROUTES = "routes"  # key in a handler's options
_UNTYPED = re.compile(r"\{(\w+)\}")

Register = Callable[[Callable[..., Any]], HTTPRouteHandler]


def serves(*names: str, status: int = 200, sync_to_thread: bool | None = None) -> Register:
    """Make a function the handler of routes of the public port, such as ``GET /health``.
    ``status``: of its answers. Raises LookupError for a route that is not in the table."""
    return _handler(PUBLIC, names, status, sync_to_thread)


def serves_admin(*names: str, status: int = 200) -> Register:
    """The same for the admin port."""
    return _handler(ADMIN, names, status, None)


def _handler(
    table: RouteTable, names: Iterable[str], status: int, sync_to_thread: bool | None
) -> Register:
    routes = tuple(table.named(name) for name in names)
    methods = {route.method for route in routes}

    def register(function: Callable[..., Any]) -> HTTPRouteHandler:
        return HTTPRouteHandler(
            [_UNTYPED.sub(r"{\1:str}", route.path) for route in routes],
            http_method=sorted(methods),  # type: ignore[arg-type]  # the table has only HTTP's here
            status_code=status,
            sync_to_thread=sync_to_thread,
            opt={_ROUTES: routes},
        )(function)

    return register


def served_by(handlers: Iterable[HTTPRouteHandler]) -> Iterator[RouteRow]:
    """Yield the routes that handlers serve."""
    for handler in handlers:
        yield from handler.opt[_ROUTES]


def route_of(table: RouteTable, scope: Scope) -> RouteRow | None:
    """Return the route that a request has matched; None: it is in no table, so deny it."""
    return table.find(str(scope.get("method")), str(scope["path_template"]))
