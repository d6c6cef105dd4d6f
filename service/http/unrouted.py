"""Requests that no route takes: a wrong path or method. They are counted and logged like others;
the error names the routes that may be meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from litestar.types import Scope

from observability.outcomes import NO_ROUTE
from service.http.scope import ASKED_PATH, new_record
from service.serving.exchange import Exchange
from service.serving.unrouted import MOST_PATH_CHARS, begin_unrouted
from service.telemetry.observer import Telemetry

_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_MOST_NEAR = 3
# Part of a base URL that another server needs.
_PREFIXES = frozenset({"openai"})
# Characters with which parts of two paths must both begin to be alike. Shorter ones, such as "v1"
# and "api", say nothing of what is meant.
_LEAST_ALIKE = 4


def unrouted(scope: Scope, request_id: str, telemetry: Telemetry) -> Exchange:
    """Return the exchange of a request that no route takes, begun."""
    method = str(scope.get("method", "GET"))  # a WebSocket's handshake has none
    method = method if method in _METHODS else "other"
    record = new_record(scope, request_id, NO_ROUTE, template="", method=method)
    return begin_unrouted(record, asked_path(scope), telemetry)


def asked_path(scope: Scope) -> str:
    """Return the path as the client sent it."""
    path: str = scope.get("state", {}).get(ASKED_PATH) or scope["path"]
    return path


class KnownRoutes:
    """Finds routes near a wrong path. ``routes``: method and path of each."""

    def __init__(self, routes: Iterable[tuple[str, str]]) -> None:
        # How long a route's path is, counted in parts; routes, by each of their parts; and parts,
        # by how they begin.
        self._lengths: dict[str, int] = {}
        self._with: dict[str, list[str]] = {}
        self._alike: dict[str, list[str]] = {}
        for method, path in routes:
            route = f"{method} {path}"
            parts = _parts(path)
            self._lengths[route] = path.count("/")
            for part in parts:
                self._with.setdefault(part, []).append(route)
        for part in self._with:
            self._alike.setdefault(part[:_LEAST_ALIKE], []).append(part)

    def near(self, path: str) -> list[str]:
        """Return at most three routes, each with its methods, that have most in common with a
        path; of equals, the shortest."""
        scores: Counter[str] = Counter()
        for asked in _parts(path[:MOST_PATH_CHARS]):
            for part in self._alike.get(asked[:_LEAST_ALIKE], ()):
                if asked in part or part in asked:
                    weight = 2 if asked == part else 1
                    for route in self._with[part]:
                        scores[route] += weight
        most = max(scores.values(), default=0)
        best = [route for route, score in scores.items() if score == most]
        return sorted(best, key=lambda route: (self._lengths[route], route))[:_MOST_NEAR]


def _parts(path: str) -> set[str]:
    return {
        part
        for part in path.lower().split("/")
        if len(part) >= _LEAST_ALIKE and part[0] != "{" and part not in _PREFIXES
    }
