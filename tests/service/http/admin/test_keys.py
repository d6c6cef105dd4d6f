"""Operators make, see and end keys; each change is audited, and no key is sent twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.queueing import ServiceClass
from observability.key_listing import KEY_CLASSES, KEY_SCOPES
from service.http.admin.application import AdminApp
from service.store.key_store import KeyStore
from service.store.place import store_place
from service.tenants.caller import KeyScope
from tests.service.http.admin.asking import KEYS, OPERATE, READ, Reply, admin_app, ask

V1 = "/admin/v1/keys"


@pytest.fixture
async def app(own_template: Path, tmp_path: Path) -> AsyncIterator[AdminApp]:
    url, file = f"sqlite:///{tmp_path}/store.sqlite3", tmp_path / "keys.toml"
    store = KeyStore(store_place(url))
    await store.prepare()
    await store.close()
    file.write_text('[[keys]]\nalias = "filed"\nkey = "key-of-the-file"\n')
    settings: dict[str, Any] = {"stored_keys": True, "keys_file": str(file), "store_url": url}
    made = admin_app(own_template, tmp_path, admin_key=KEYS, **settings)
    sources = made.desk.services.key_sources
    sources._is_up = lambda: True  # no server opens the store of the responses here
    yield made
    await sources.close()


async def order(app: AdminApp, path: str, body: object = None, *, key: str = OPERATE) -> Reply:
    return await ask(app, "POST", V1 + path, key=key, body=body)


async def listed(app: AdminApp) -> dict[str, dict[str, Any]]:
    reply = await ask(app, "GET", V1, key=READ)
    assert reply.json()["are_stored"]
    return {row["id"]: row for row in reply.json()["keys"]}


async def test_a_key_is_made_rotated_and_revoked(app: AdminApp) -> None:
    made = await order(app, "", {"alias": "team", "tokens_per_day": 500, "expires_in": 3600})
    assert made.status == 201
    first, key = made.json()["row"]["id"], made.json()["key"]
    ring = app.desk.services.keys
    assert ring.check(f"Bearer {key}".encode()).alias == "team"  # at once
    rotated = await order(app, f"/{first}/rotate", {"overlap": 60})
    assert [row["id"] for row in rotated.json()["replaced"]] == [first]
    second = rotated.json()["row"]["id"]
    revoked = await order(app, f"/{second}/revoke")
    assert [row["id"] for row in revoked.json()["revoked"]] == [second]
    rows = await listed(app)
    assert (rows[first]["state"], rows[second]["state"]) == ("valid", "revoked")
    assert (rows[first]["tokens_per_day"], rows[first]["tokens_today"]) == (500, 0)
    audit = (await ask(app, "GET", "/admin/v1/audit", key=READ)).json()["rows"]
    seen = [(row["actor"], row["action"], row["target"]) for row in audit]
    assert seen == [
        ("ann", "key revoke", second),
        ("ann", "key rotate", second),
        ("ann", "key create", first),
    ]
    for one in (key, rotated.json()["key"]):
        assert one not in str(audit) + str(rows)


async def test_whoever_reads_changes_nothing(app: AdminApp) -> None:
    for path in ("", "/team/rotate", "/team/revoke"):
        assert (await order(app, path, {"alias": "team"}, key=READ)).status == 403
    assert [row["source"] for row in (await listed(app)).values()] == ["file"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"alias": "Bad"}, "alias"),
        ({"alias": "other"}, "alias"),
        ({"alias": "a", "scopes": ["all"]}, "scopes[1]"),
        ({"alias": "a", "expires_in": 1e-9}, "expires_in"),
        ({"alias": "a", "requests_per_minute": 0}, "requests_per_minute"),
        ({"alias": "a", "expires_in": -1}, "expires_in"),
        ({"alias": "a", "surprise": 1}, "surprise"),
    ],
)
async def test_a_wrong_order_names_the_field(app: AdminApp, body: object, field: str) -> None:
    reply = await order(app, "", body)
    assert (reply.status, reply.json()["field"]) == (422, field)


async def test_a_wrong_alias_is_answered_in_words(app: AdminApp) -> None:
    reply = await order(app, "", {"alias": "My Team"})
    assert reply.json()["detail"] == "'alias' must be 1 to 32 of a-z, 0-9, _ and -."


async def test_a_next_key_that_would_have_expired_is_refused(app: AdminApp) -> None:
    await order(app, "", {"alias": "team"})
    reply = await order(app, "/team/rotate", {"expires_in": 1e-9})
    assert (reply.status, reply.json()["field"]) == (422, "expires_in")


@pytest.mark.parametrize(
    ("path", "words"),
    [("/nobody/rotate", "nobody"), ("/nobody/revoke", "nobody"), ("/filed/revoke", "keys file")],
)
async def test_what_cannot_be_done_is_said(app: AdminApp, path: str, words: str) -> None:
    reply = await order(app, path, {})
    assert reply.status == 404
    assert words in reply.json()["detail"]


async def test_a_server_without_stored_keys_says_how_to_have_them(
    own_template: Path, tmp_path: Path
) -> None:
    plain = admin_app(own_template, tmp_path, admin_key=KEYS, store_url="none")
    reply = await order(plain, "", {"alias": "team"})
    assert reply.status == 503
    assert "--stored-keys" in reply.json()["detail"]
    assert (await ask(plain, "GET", V1, key=READ)).json() == {"keys": [], "are_stored": False}


def test_what_the_dashboard_offers_is_what_a_key_may_have() -> None:
    assert set(KEY_SCOPES) == {scope.value for scope in KeyScope}
    assert set(KEY_CLASSES) == {one.value for one in ServiceClass}


async def test_a_new_key_of_an_alias_has_what_its_order_says_and_no_more(app: AdminApp) -> None:
    await order(app, "", {"alias": "team", "tokens_per_day": 500, "weight": 2})
    row = (await order(app, "", {"alias": "team"})).json()["row"]
    assert (row["tokens_per_day"], row["weight"]) == (None, 1)  # docs/keys.md says so
