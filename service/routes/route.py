"""What is declared about a route, and the table of a port's routes."""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from observability.admin_api import AdminScope
from service.tenants.caller import KeyScope

WEBSOCKET, RPC = "WEBSOCKET", "RPC"
"""Methods of routes that are not HTTP requests."""
ANY_PATH = "*"
"""The path of a row for every path that has a route."""

LEAD = "lead"
"""In place of a parameter: one worker serves the route (``service.peers.peers.Peers.lead``)."""

_TYPE_OF_PARAMETER = re.compile(r":[a-z]+\}")


class Port(enum.StrEnum):
    PUBLIC = "public"
    ADMIN = "admin"
    GRPC = "grpc"


class Anyone(enum.StrEnum):
    """The scopes of routes that need no key."""

    ALWAYS = "anyone"
    KEYLESS = "anyone, without API keys"  # on a server with keys, the route does not exist


RouteScope = Anyone | KeyScope | AdminScope
_SCOPES: dict[Port, tuple[type[RouteScope], ...]] = {
    Port.PUBLIC: (Anyone, KeyScope),
    Port.ADMIN: (AdminScope,),
    Port.GRPC: (Anyone, KeyScope),
}


class BodyBound(enum.Enum):
    """How large the body (of an RPC or WebSocket: each message) of a route's requests may be."""

    NONE = "none is read"
    REQUEST = "`--max-body-bytes`"
    SMALL = "64 KiB"

    def most_bytes(self, setting: int) -> int:
        """``setting``: the value of ``--max-body-bytes``."""
        return {BodyBound.NONE: 0, BodyBound.REQUEST: setting, BodyBound.SMALL: 64 * 1024}[self]


class Limit(enum.Enum):
    """What a route's requests count against, besides the memory of all arriving bodies."""

    KEY = "what the [limits of its key](keys.md#limits) leave"
    QUEUE = "`--max-waiting-requests`, `--max-waiting-tokens`, and the key's share of both"
    RUNS = "`--resume-total-bytes`, and the key's share of it"
    SOCKETS = "`--max-websockets`, and the key's share of it"
    FEED = "16 readers of each API worker, and the admin key's share of them"
    BUNDLE = "one at a time"
    EXPORTS = "two exports at a time"
    LOAD = "one load run at a time"
    STANDARD = (
        "256 calls of the kind, or a quarter of gRPC's connections if that is fewer; 16 per "
        "connection"
    )


@dataclass(frozen=True, slots=True)
class RouteRow:
    """``scope``: what its caller's key must have. ``does``: in a few words. ``counted``: the name
    under which metrics and logs have its requests (``observability.outcomes.ROUTES``); those of a
    route without one are not counted. ``live_id``: the parameter of its path that is the id of
    what may live in one API worker only, which then serves the request; or ``LEAD``."""

    port: Port
    method: str
    path: str
    scope: RouteScope
    does: str
    counted: str = ""
    body: BodyBound = BodyBound.NONE
    limits: frozenset[Limit] = frozenset()
    live_id: str = ""

    @property
    def name(self) -> str:
        """What a handler names it by, unique within a port."""
        return f"{self.method} {self.path}"

    @property
    def template(self) -> str:
        """The path without types of its parameters."""
        return _TYPE_OF_PARAMETER.sub("}", self.path)


class RouteTable:
    """The routes of one port. What is not in it is not served."""

    def __init__(self, port: Port, routes: Iterable[RouteRow]) -> None:
        """Raises ValueError for a row that contradicts another one or its port."""
        self.port = port
        self._rows: dict[tuple[str, str], RouteRow] = {}
        for route in routes:
            key = route.method, route.template
            if key in self._rows:
                raise ValueError(f"{port}: {route.name} is in the table twice")
            if route.port is not port or not isinstance(route.scope, _SCOPES[port]):
                raise ValueError(f"{port}: {route.name} is not a route of this port")
            self._rows[key] = route

    def __iter__(self) -> Iterator[RouteRow]:
        return iter(self._rows.values())

    def named(self, name: str) -> RouteRow:
        """Return the route that a handler serves. Raises LookupError if it is not declared."""
        for route in self:
            if route.name == name:
                return route
        raise LookupError(f"{name} is not in the table of the {self.port} port (service/routes)")

    def find(self, method: str, template: str) -> RouteRow | None:
        """Return the route of a request whose path matched this template; None: deny it."""
        found = self._rows.get((method, template))
        return found if found is not None else self._rows.get((method, ANY_PATH))

    def check_served(self, served: Iterable[RouteRow]) -> None:
        """Raise ValueError unless each route has exactly one handler."""
        counts = Counter(served)
        for route in self:
            if route.path != ANY_PATH and counts[route] != 1:
                raise ValueError(f"{self.port}: {route.name} has {counts[route]} handlers, not one")
        if strangers := counts.keys() - set(self):
            names = ", ".join(sorted(route.name for route in strangers))
            raise ValueError(f"{self.port}: {names} is not in the table")
