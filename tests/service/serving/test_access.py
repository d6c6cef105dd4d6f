"""A key's scopes against a route's, in the one place where they are compared."""

from __future__ import annotations

import pytest

from service.api_keys import api_keys
from service.errors import MissingScopeError, NotFoundError, UnauthorizedError
from service.routes.route import RouteRow
from service.routes.tables import PUBLIC
from service.serving.access import Access
from service.serving.keys import KeyRing
from service.tenants.caller import ANYBODY, Caller, KeyScope
from service.tenants.stored_key import KeyGrant, StoredKey, digest_of

KEYED, KEYLESS = Access(KeyRing(api_keys(["key"]))), Access(KeyRing([]))
CHAT = PUBLIC.named("POST /v1/chat/completions")
MODELS = PUBLIC.named("GET /v1/models")
HEALTH, METRICS = PUBLIC.named("GET /health"), PUBLIC.named("GET /metrics")


@pytest.mark.parametrize("route", [CHAT, MODELS])
async def test_a_route_needs_a_key_where_there_are_keys(route: RouteRow) -> None:
    assert (await KEYED.check(route, b"Bearer key", b"")).alias == "key1"
    assert (await KEYED.check(route, b"", b"key")).alias == "key1"
    for sent in (b"", b"Bearer wrong"):
        with pytest.raises(UnauthorizedError):
            await KEYED.check(route, sent, b"")
        assert await KEYLESS.check(route, sent, b"") is ANYBODY


async def test_open_routes_look_at_no_key() -> None:
    for access in (KEYED, KEYLESS):
        for sent in (b"", b"Bearer wrong", b"Bearer key"):
            assert await access.check(HEALTH, sent, b"") is ANYBODY


async def test_metrics_are_open_only_where_there_are_no_keys() -> None:
    assert await KEYLESS.check(METRICS, b"", b"") is ANYBODY
    for sent in (b"", b"Bearer wrong", b"Bearer key"):
        with pytest.raises(NotFoundError, match="--admin-port"):
            await KEYED.check(METRICS, sent, b"")


async def test_keys_are_read_again_for_an_unknown_one_only() -> None:
    ring, looks = KeyRing((), changes=True), [0]
    made = StoredKey(id="", shown="", digest=digest_of("made"), grant=KeyGrant(alias="team"))

    async def look() -> None:
        looks[0] += 1
        ring.replace([made] if looks[0] > 1 else ())

    access = Access(ring, look)
    with pytest.raises(UnauthorizedError, match="didn't provide"):
        await access.check(CHAT, b"", b"")
    assert looks[0] == 0
    with pytest.raises(UnauthorizedError, match="Incorrect"):
        await access.check(CHAT, b"", b"made")
    for _ in range(2):
        assert (await access.check(CHAT, b"", b"made")).alias == "team"
    assert looks[0] == 2


def test_a_key_without_the_scope_is_told_which_it_needs() -> None:
    reader = Caller(scopes=frozenset({KeyScope.READ}))
    assert KEYED.permitted(MODELS, reader) is reader
    with pytest.raises(MissingScopeError, match="needs the scope 'inference'; it has 'read'") as no:
        KEYED.permitted(CHAT, reader)
    assert (no.value.status, no.value.kind.type) == (403, "permission_error")
    with pytest.raises(MissingScopeError, match="it has none"):
        KEYED.permitted(MODELS, Caller(scopes=frozenset()))
