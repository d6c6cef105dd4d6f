"""What routes of the admin API receive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.types import Scope

from engine.faults.page import FaultPage
from service.admin.archive import ArchiveSource
from service.admin.audit import AuditTrail
from service.admin.feed import Feed
from service.admin.gate import Actor, Approach
from service.admin.hot_settings import HotSettings
from service.admin.load import LoadRuns
from service.admin.problem import invalid
from service.admin.timed import Timed
from service.admin.whole import Whole
from service.http.admin.downloads import Downloads
from service.http.body import read_body
from service.http.scope import ROUTE_ROW, client_address, header
from service.problems import problem_in
from service.routes.route import RouteRow
from service.serving.services import Services

# Added by proxies, which on the server's own machine have its address.
_FORWARDED = frozenset(
    {b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"}
    | {b"x-real-ip", b"x-envoy-external-address", b"cf-connecting-ip", b"true-client-ip"}
)
ACTOR = "quire_admin_actor"  # key in the scope's state

Decoded = TypeVar("Decoded")


@dataclass(frozen=True, slots=True)
class AdminDesk:
    """What the routes use."""

    services: Services
    archive: ArchiveSource | None
    audit: AuditTrail
    settings: HotSettings
    log_level: Timed[str]
    tracing: Timed[float] | None
    feed: Feed
    load: LoadRuns
    whole: Whole
    faults: FaultPage | None = None
    bundles: Downloads = field(default_factory=lambda: Downloads("bundle", 1))
    exports: Downloads = field(default_factory=lambda: Downloads("export", 2))


class AdminCall(Request[Any, Any, Any]):
    """Litestar creates one for each request."""

    __slots__ = ()

    @property
    def desk(self) -> AdminDesk:
        desk: AdminDesk = self.app.state.desk
        return desk

    @property
    def actor(self) -> Actor:
        actor: Actor = self.scope["state"][ACTOR]
        return actor

    async def decoded(self, kind: type[Decoded]) -> Decoded:
        """Return the body as ``kind``; an empty one is ``{}``. Raises ProblemError, QuireError."""
        route: RouteRow = self.scope["state"][ROUTE_ROW]
        limit = route.body.most_bytes(self.desk.services.settings.max_body_bytes)
        body = await read_body(self.scope, self.receive, limit=limit)
        try:
            return msgspec.json.decode(body or b"{}", type=kind)
        except msgspec.ValidationError as error:
            field, text = problem_in(error, kind, whole="the body")
            raise invalid(f"{text[0].upper()}{text[1:]}.", field or None) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise invalid("The body is not JSON.") from None
        except RecursionError:
            raise invalid("The body is nested too deeply.") from None

    def audit(self, action: str, *, target: str = "", before: str = "", after: str = "") -> None:
        """Record a change that this request made."""
        self.desk.audit.add(
            self.actor.alias,
            self.actor.address,
            action,
            target=target,
            before=before,
            after=after,
        )


def approach_of(scope: Scope) -> Approach:
    return Approach(
        address=client_address(scope) or "",
        host=header(scope, b"host"),
        origin=header(scope, b"origin"),
        site=header(scope, b"sec-fetch-site"),
        authorization=header(scope, b"authorization"),
        is_forwarded=any(name in _FORWARDED for name, _ in scope["headers"]),
    )


def json_answer(
    value: object, headers: dict[str, str] | None = None, *, status: int = 200
) -> Response[bytes]:
    """Return a small answer as JSON."""
    return Response(
        content=msgspec.json.encode(value),
        status_code=status,
        media_type="application/json",
        headers={"cache-control": "no-store", **(headers or {})},
    )
