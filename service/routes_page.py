"""``python -m service.routes_page [--check]``: writes docs/routes.md from the tables of routes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from observability.admin_api import AdminScope
from service.routes.route import Anyone, Limit, Port, RouteRow, RouteTable
from service.routes.tables import TABLES
from service.tenants.caller import KeyScope

PAGE = Path(__file__).resolve().parent.parent / "docs" / "routes.md"

_INTRODUCTION = """\
# Routes

Written by `python -m service.routes_page` (`make docs`) from `service/routes/tables.py`; a test
fails when they differ.

Every route of every port. The server reads the same tables: a route that is not in them is not
served, and one without a handler stops the start.

**Who** may send requests:

| | |
|---|---|
"""
_WHO: dict[Anyone | KeyScope | AdminScope, str] = {
    Anyone.ALWAYS: "needs no key.",
    Anyone.KEYLESS: "needs no key, and is 404 on a server that has API keys.",
    KeyScope.READ: "on a server with API keys, any valid key.",
    KeyScope.INFERENCE: "on a server with API keys, a key with the scope `inference`.",
}
_WHO_OPERATES = {
    AdminScope.READ: "any admin key; without admin keys, clients on the server's own machine.",
    AdminScope.OPERATE: "an admin key with the scope `operate`.",
}
_REST = """
Without a valid key the answer is 401 (gRPC: `UNAUTHENTICATED`), with a key that lacks the scope 403
with the code `missing_scope` (`PERMISSION_DENIED`), in the format of the route's API. A model that
a key may not use, and what another tenant stored, streams or runs, does not exist for it (404,
`NOT_FOUND`).

**Body**: the largest that is read; of WebSocket and gRPC, the largest message. Larger ones get 413
(`RESOURCE_EXHAUSTED`).

**Counted as**: `route` in metrics, traces and logs.

**Limits**, besides the memory for all arriving bodies:

| | |
|---|---|
"""
_TITLES = {
    Port.PUBLIC: """
## The public port

Paths below `/v1` are also served without it, and HEAD wherever GET is.
""",
    Port.ADMIN: """
## The admin port

[The admin API](admin.md) has the details. HEAD is served wherever GET is.
""",
    Port.GRPC: """
## gRPC

On its own port, `--grpc-port`: [the API](grpc.md).
""",
}


def page() -> str:
    """Return the whole document."""
    parts = [
        _INTRODUCTION,
        *(f"| {scope} | {text} |\n" for scope, text in _WHO.items()),
        *(f"| admin: {scope} | {text} |\n" for scope, text in _WHO_OPERATES.items()),
        _REST,
        *(f"| {limit.name.lower()} | {limit.value} |\n" for limit in Limit),
        *(_TITLES[table.port] + _table(table) for table in TABLES),
    ]
    return "".join(parts)


def _table(table: RouteTable) -> str:
    heads = ["Route", "Who", "Body", "Limits", "Does"]
    if table.port is not Port.ADMIN:
        heads.insert(2, "Counted as")
    lines = [heads, ["---"] * len(heads), *(_cells(route) for route in table)]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cells(route: RouteRow) -> list[str]:
    limits = [limit.name.lower() for limit in Limit if limit in route.limits]
    scope = f"admin: {route.scope}" if isinstance(route.scope, AdminScope) else route.scope.value
    cells = [
        f"`{route.method} {route.template}`",
        scope,
        route.body.value,
        ", ".join(limits) or "none",
        route.does,
    ]
    if route.port is not Port.ADMIN:
        cells.insert(2, f"`{route.counted}`" if route.counted else "not counted")
    return cells


def main(argv: list[str]) -> int:
    """Write the page, or with ``--check`` only compare: exit status 1 if it is stale."""
    parser = argparse.ArgumentParser(prog="python -m service.routes_page", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    if parser.parse_args(argv).check:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if current == page():
            return 0
        print(f"{PAGE} is stale: run python -m service.routes_page", file=sys.stderr)
        return 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
