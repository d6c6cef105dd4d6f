"""Keys of the public API, as operators manage them."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from litestar import Response
from litestar.params import FromPath
from msgspec import Meta

from observability.key_listing import KeyRow, KeyRows, NewKey, RevokedKeys
from service.admin.own_part import LOOK_AT_KEYS_AT
from service.admin.part_messages import Nothing
from service.admin.problem import ProblemError, invalid, not_found, unavailable
from service.http.admin.call import AdminCall, json_answer
from service.http.admin.queries import only
from service.http.serves import serves_admin
from service.store.key_store import KeyStore, NoSuchKeyError
from service.tenants.key_limits import limits_text
from service.tenants.stored_key import KeyGrant, StoredKey
from service.turns import Pace

_MOST_ROWS = 1000
_MOST_SECONDS = 10 * 365 * 86_400.0

_Seconds = Annotated[float, Meta(gt=0, le=_MOST_SECONDS)]


class KeyOrder(KeyGrant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``expires_in``: seconds; None: never."""

    expires_in: _Seconds | None = None


class RotateOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``overlap``: seconds for which the keys before stay valid; 0: they are revoked."""

    overlap: Annotated[float, Meta(ge=0, le=_MOST_SECONDS)] = 86_400.0
    expires_in: _Seconds | None = None


class RevokeOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An order without details."""


@serves_admin("GET /admin/v1/keys")
async def list_keys(request: AdminCall) -> Response[bytes]:
    """The keys of the store and of the keys file, the newest 1,000. Those of the command line are
    not among them."""
    only(request.query_params)
    sources = request.desk.services.key_sources
    rows, pace = [], Pace()
    for key in sources.keys[-_MOST_ROWS:]:
        rows.append(_row(request, key))
        await pace.rest()
    return json_answer(KeyRows(tuple(rows), sources.store is not None))


@serves_admin("POST /admin/v1/keys", status=201)
async def create_key(request: AdminCall) -> Response[bytes]:
    """Make a key. It is in this answer and nowhere else."""
    order = await request.decoded(KeyOrder)
    store = _store(request)
    grant = KeyGrant(**{name: getattr(order, name) for name in KeyGrant.__struct_fields__})
    try:
        grant.check()
    except ValueError as error:
        raise invalid(f"{error}.", "alias") from None
    try:
        made = await store.create(grant, _until(order.expires_in))
    except ValueError as error:
        raise invalid(f"{error}.", "expires_in") from None
    request.audit("key create", target=made.key.id, after=_described(made.key))
    await request.desk.whole.gather(LOOK_AT_KEYS_AT, Nothing())
    return json_answer(NewKey(made.text, _row(request, made.key)), status=201)


@serves_admin("POST /admin/v1/keys/{name}/rotate", status=201)
async def rotate_key(request: AdminCall, name: FromPath[str]) -> Response[bytes]:
    """Make the next key of an id or alias. The ones before stay valid for a while."""
    order = await request.decoded(RotateOrder)
    try:
        made = await _store(request).rotate(
            name, overlap=order.overlap, expires=_until(order.expires_in)
        )
    except NoSuchKeyError as error:
        raise _missing(request, name, error) from None
    except ValueError as error:
        raise invalid(f"{error}.", "expires_in") from None
    before = ", ".join(key.id for key in made.replaced)
    until = f"valid for {order.overlap:g} s" if order.overlap else "revoked"
    after = f"{_described(made.key)}; earlier keys {until}"
    request.audit("key rotate", target=made.key.id, before=before, after=after)
    await request.desk.whole.gather(LOOK_AT_KEYS_AT, Nothing())
    replaced = tuple(_row(request, key) for key in made.replaced)
    return json_answer(NewKey(made.text, _row(request, made.key), replaced), status=201)


@serves_admin("POST /admin/v1/keys/{name}/revoke")
async def revoke_key(request: AdminCall, name: FromPath[str]) -> Response[bytes]:
    """End the key of an id, or all keys of an alias, at once."""
    await request.decoded(RevokeOrder)
    try:
        revoked = await _store(request).revoke(name)
    except NoSuchKeyError as error:
        raise _missing(request, name, error) from None
    for key in revoked:
        request.audit("key revoke", target=key.id, before=_described(key), after="revoked")
    await request.desk.whole.gather(LOOK_AT_KEYS_AT, Nothing())
    return json_answer(RevokedKeys(tuple(_row(request, key) for key in revoked)))


def _store(request: AdminCall) -> KeyStore:
    store = request.desk.services.key_sources.store
    if store is None:
        raise unavailable("This server has no stored keys; start it with --stored-keys.")
    return store


def _missing(request: AdminCall, name: str, error: NoSuchKeyError) -> ProblemError:
    in_file = any(
        name in (key.id, key.grant.alias) and key.source == "file"
        for key in request.desk.services.key_sources.keys
    )
    return not_found("This key is in the keys file; change it there." if in_file else str(error))


def _until(seconds: float | None) -> float | None:
    return None if seconds is None else time.time() + seconds


def _described(key: StoredKey) -> str:
    return f"{key.grant.alias}: {limits_text(key.grant.limits) or 'no limits'}"


def _row(request: AdminCall, key: StoredKey) -> KeyRow:
    grant, services = key.grant, request.desk.services
    limited = grant.tokens_per_day is not None
    return KeyRow(
        id=key.id,
        alias=grant.alias,
        shown=key.shown,
        state=key.state(time.time()),
        source=key.source,
        created=key.created,
        expires=key.expires,
        last_used=key.last_used,
        scopes=tuple(scope.value for scope in grant.scopes),
        models=grant.models,
        service_class=grant.service_class.value,
        weight=grant.weight,
        priority=grant.priority,
        **grant.limits._asdict(),
        tokens_today=services.metering.ledger.used_today(grant.alias) if limited else None,
    )
