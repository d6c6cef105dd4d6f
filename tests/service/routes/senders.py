"""Who sends requests in the matrix of routes and keys, and a request for each route."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

from observability.admin_api import AdminScope
from service.grpc.status import STATUS_CODES
from service.proto.quire.v1 import quire_pb2 as pb
from service.routes.route import Anyone, RouteRow
from service.store.key_database import KeyDatabase
from service.store.place import store_place
from service.tenants.caller import ALL_SCOPES, Caller, KeyScope
from service.tenants.stored_key import KeyGrant, digest_of, new_key
from tests.law.routes import ROUTES
from tests.service.grpc.clients import GrpcService, chat

OWNER, OTHER, READER, NARROW = "sk-owner", "sk-other", "sk-reader", "sk-narrow"
EXPIRED, REVOKED, LIMITED = "sk-expired", "sk-revoked", "sk-limited"
OPERATE, LOOK = "operate-key-1", "reader-key-1"


@dataclass(frozen=True)
class Sender:
    """``scopes``: of its API key; None: it has none that is valid. ``admin``: of its admin key."""

    key: str | None
    scopes: frozenset[KeyScope] | None = None
    admin: AdminScope | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.key is None else {"authorization": f"Bearer {self.key}"}


SENDERS = {
    "nobody": Sender(None),
    "wrong": Sender("sk-wrong"),
    "expired": Sender(EXPIRED),
    "revoked": Sender(REVOKED),
    "reader": Sender(READER, frozenset({KeyScope.READ})),
    "owner": Sender(OWNER, ALL_SCOPES),
    "other": Sender(OTHER, ALL_SCOPES),
    "operator": Sender(OPERATE, admin=AdminScope.OPERATE),
    "admin-reader": Sender(LOOK, admin=AdminScope.READ),
}

_KEYS_FILE = f"""
[[keys]]
alias = "reader"
key = "{READER}"
scopes = ["read"]

[[keys]]
alias = "narrow"
key = "{NARROW}"
models = ["tiny-b"]

[[keys]]
alias = "limited"
key = "{LIMITED}"
requests_per_minute = 1

[[keys]]
alias = "owner"
key = "{EXPIRED}"
expires = 2026-01-01T00:00:00Z
"""


class MatrixService(GrpcService):
    """A server with keys on every port: of the command line, of a file and of the store."""

    names = "tiny,tiny-b"

    def __init__(self, model: Path, folder: Path) -> None:
        keys = f"owner={OWNER},another={OTHER}"
        admin_keys = f"operate:ann={OPERATE},read:bob={LOOK}"
        store = f"sqlite:///{folder / 'store.sqlite3'}"
        keys_file = folder / "keys.toml"
        keys_file.write_text(_KEYS_FILE)
        asyncio.run(_store_revoked(store))
        super().__init__(
            *(model, folder, "--api-key", keys, "--admin-key", admin_keys),
            *("--store-url", store, "--keys-file", str(keys_file), "--stored-keys"),
        )


async def _store_revoked(store_url: str) -> None:
    database = KeyDatabase(store_place(store_url))
    try:
        await database.bring_up_to_date()
        key, _ = new_key(KeyGrant(alias="owner"))
        await database.add(msgspec.structs.replace(key, digest=digest_of(REVOKED)))
        await database.revoke([key.id], time.time())
    finally:
        await database.close()


@dataclass(frozen=True)
class Sample:
    """A request of a route. ``status``: for those who may send it; ``others``: where it names what
    another tenant owns."""

    body: Any = None
    status: int = 200
    others: int | None = None
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)


_BODIES = {route.path: route.base for route in reversed(ROUTES)}
_OWNED = Sample(others=404)
# What is not here has the body that tests/law sends, or none, and is answered with 200.
SAMPLES = {
    "GET /v1/responses/{response_id}": _OWNED,
    "DELETE /v1/responses/{response_id}": _OWNED,
    "POST /v1/responses/{response_id}/cancel": _OWNED,
    "GET /v1/responses/{response_id}/input_items": _OWNED,
    "GET /v1/streams/{stream_id}": _OWNED,
    "RPC /quire.v1.Quire/Embed": Sample(pb.EmbedRequest(input=[pb.EmbedInput(text="hi")])),
    "RPC /quire.v1.Quire/Chat": Sample(chat(max_tokens=2)),
    "RPC /quire.v1.Quire/Generate": Sample(pb.GenerateRequest(text="hi", max_tokens=2)),
    "RPC /quire.v1.Quire/Abort": Sample(pb.AbortRequest(request_id="req_none"), 404),
    "RPC /grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Sample(
        ServerReflectionRequest(list_services="")
    ),
    "OPTIONS *": Sample(status=204),
    # Of the admin port. No request of this id is there, and no span is exported.
    "GET /admin/v1/requests/{request_id}": Sample(status=404),
    "POST /admin/v1/requests/{request_id}/cancel": Sample({}, 404),
    "GET /admin/v1/series": Sample(query="?names=tokens_out&from=10s"),
    "PATCH /admin/v1/settings": Sample({}, 428),
    "POST /admin/v1/loglevel": Sample({"level": "info", "seconds": 1}),
    "POST /admin/v1/tracing": Sample({"ratio": 1, "seconds": 1}, 503),
    "POST /admin/v1/keys": Sample({"alias": "team"}, 201),
    "POST /admin/v1/keys/{name}/rotate": Sample({}, 404),  # no key has the sample's name
    "POST /admin/v1/keys/{name}/revoke": Sample({}, 404),
    "POST /admin/v1/load": Sample({"rate": 1, "seconds": 0.01}, 202),
    "POST /admin/v1/loadtrace": Sample({"seconds": 1}),
    "POST /admin/v1/faults/{name}": Sample({}, 404),  # the server was started without faults
}


def sample(route: RouteRow) -> Sample:
    body = _BODIES.get(route.path, {}) if route.method == "POST" else None
    return SAMPLES.get(route.name) or Sample(body)


def expected(route: RouteRow, sender: Sender, asked: Sample) -> int:
    """The status that the table promises."""
    match route.scope:
        case Anyone.ALWAYS:
            return asked.status
        case Anyone.KEYLESS:
            return 404
        case AdminScope() as needed:
            if sender.admin is None:
                return 401
            return asked.status if sender.admin in (needed, AdminScope.OPERATE) else 403
        case KeyScope() as needed:
            if sender.scopes is None:
                return 401
            if not Caller(scopes=sender.scopes).may(needed):
                return 403
            if asked.others is not None and sender.key != OWNER:
                return asked.others
            return asked.status


def codes(status: int) -> grpc.StatusCode:
    return grpc.StatusCode.OK if status == 200 else STATUS_CODES[status]


def matrix(routes: Iterator[RouteRow]) -> list[Any]:
    return [
        pytest.param(route, sender, id=f"{route.name}-{name}")
        for route in routes
        for name, sender in SENDERS.items()
    ]
