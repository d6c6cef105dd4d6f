"""Who may use which route: the one place where a key's scopes are compared with the table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from service.errors import MissingScopeError, NotFoundError, UnknownKeyError
from service.routes.route import Anyone, RouteRow
from service.serving.keys import KeyRing
from service.tenants.caller import ANYBODY, Caller, KeyScope


async def _nowhere() -> None:
    """Do nothing: keys do not change."""


class Access:
    """``keys``: of the server's clients; none: no key is needed. ``look``: reads the keys
    again when one is unknown."""

    def __init__(self, keys: KeyRing, look: Callable[[], Awaitable[None]] = _nowhere) -> None:
        self._keys = keys
        self._look = look

    async def check(self, route: RouteRow, authorization: bytes, api_key: bytes) -> Caller:
        """Return who sends a request. Raises UnauthorizedError without a valid key,
        MissingScopeError if the key does not suffice, NotFoundError for a route that this server
        does not have."""
        if route.scope is Anyone.ALWAYS or not self._keys:
            return ANYBODY
        if route.scope is Anyone.KEYLESS:
            raise NotFoundError(
                f"{route.path} is not public on a server with API keys; it is on the admin port "
                "(--admin-port), with an admin key."
            )
        try:
            caller = self._keys.check(authorization, api_key)
        except UnknownKeyError:
            await self._look()  # it may have been made a moment ago
            caller = self._keys.check(authorization, api_key)
        return self.permitted(route, caller)

    def permitted(self, route: RouteRow, caller: Caller) -> Caller:
        """Return a caller who is known already. Raises MissingScopeError."""
        scope = route.scope
        if isinstance(scope, KeyScope) and not caller.may(scope):
            raise MissingScopeError(
                f"This API key may not use {route.template}, which needs the scope '{scope}'; it "
                f"has {_listed(caller.scopes)}. Use another key."
            )
        return caller


def _listed(scopes: frozenset[KeyScope]) -> str:
    return " and ".join(f"'{scope}'" for scope in sorted(scopes)) or "none"
