"""Who may do what on the admin API, route by route, and what is answered otherwise."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
import pytest

from service.http.admin.application import ADMIN_HANDLERS, AdminApp
from service.http.application import HANDLERS
from tests.service.http.admin.asking import (
    API_KEY,
    ELSEWHERE,
    HERE,
    KEYS,
    OPERATE,
    READ,
    Reply,
    admin_app,
    ask,
)
from tests.service.http.apps import new_app

ROUTES = sorted(
    (str(method), re.sub(r"\{[^}]*\}", "req_1", path))
    for handler in ADMIN_HANDLERS
    for path in handler.paths
    for method in handler.http_methods
    if method not in ("HEAD", "OPTIONS")
)


@pytest.fixture(scope="module")
def keyed(own_template: Path, tmp_path_factory: pytest.TempPathFactory) -> AdminApp:
    folder = tmp_path_factory.mktemp("keyed")
    return admin_app(own_template, folder, admin_key=KEYS, api_key=(API_KEY,), store_url="none")


@pytest.fixture(scope="module")
def keyless(own_template: Path, tmp_path_factory: pytest.TempPathFactory) -> AdminApp:
    return admin_app(own_template, tmp_path_factory.mktemp("keyless"), store_url="none")


def reached(app: AdminApp, method: str, path: str, **how: str | None) -> bool:
    """Whether the route was reached: anything but the gate's own refusals."""

    async def sent() -> Reply:
        # Not streams: the client leaves at once.
        return await ask(app, method, path, **how)  # type: ignore[arg-type]

    reply = asyncio.run(sent())
    if reply.status in (401, 403, 421):
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.json()["type"].rpartition(":")[2] in ("key", "scope", "host", "origin")
        return False
    return True


def test_the_table_of_routes_is_not_empty() -> None:
    assert len(ROUTES) >= 18
    assert ("POST", "/admin/v1/requests/req_1/cancel") in ROUTES


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_each_route_needs_a_key_of_its_scope(keyed: AdminApp, method: str, path: str) -> None:
    for address in (HERE, ELSEWHERE):
        assert reached(keyed, method, path, key=OPERATE, address=address)
        assert reached(keyed, method, path, key=READ, address=address) is (method == "GET")
        for key in (None, "", "wrong-key-1", API_KEY, OPERATE.upper(), f"{OPERATE} "[:-2]):
            assert not reached(keyed, method, path, key=key, address=address)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_without_keys_only_this_machine_may_read(keyless: AdminApp, method: str, path: str) -> None:
    for key in (None, "anything-at-all"):
        assert reached(keyless, method, path, key=key) is (method == "GET")
        assert reached(keyless, method, path, key=key, address="::1") is (method == "GET")
        assert not reached(keyless, method, path, key=key, address=ELSEWHERE)
        assert not reached(keyless, method, path, key=key, address="")


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_no_page_reaches_a_route(
    keyed: AdminApp, keyless: AdminApp, method: str, path: str
) -> None:
    async def statuses(app: AdminApp, key: str | None) -> list[int]:
        pages = (
            {"origin": "http://evil.example"},
            {"origin": "http://localhost:18000"},
            {"origin": "null"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        )
        return [(await ask(app, method, path, key=key, headers=page)).status for page in pages]

    assert asyncio.run(statuses(keyed, OPERATE)) == [403] * 5
    assert asyncio.run(statuses(keyless, None)) == [403] * 5


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_name_that_an_attacker_resolves_to_this_machine_is_not_answered(
    keyed: AdminApp, keyless: AdminApp, method: str, path: str
) -> None:
    async def status(app: AdminApp, key: str | None) -> int:
        host = {"host": "rebound.example:18000"}
        return (await ask(app, method, path, key=key, headers=host)).status

    assert asyncio.run(status(keyed, OPERATE)) == 421
    assert asyncio.run(status(keyless, None)) == 421


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE", "PUT", "OPTIONS", "TRACE"])
def test_strangers_do_not_learn_which_paths_exist(keyed: AdminApp, method: str) -> None:
    async def replies() -> set[bytes]:
        paths = ("/admin/v1/settings", "/admin/v1/nothing", "/", "/docs", "/metrics")
        return {(await ask(keyed, method, path)).body for path in paths}

    assert len(asyncio.run(replies())) == 1


def test_nothing_of_the_admin_api_is_on_the_public_port(own_template: Path, tmp_path: Path) -> None:
    public = new_app(own_template, tmp_path, admin_key=KEYS, store_url="none")

    async def statuses() -> list[int]:
        return [
            (await ask(public, method, path, key=OPERATE, headers={"host": "localhost"})).status
            for method, path in ROUTES
            if path != "/metrics"
        ]

    assert set(asyncio.run(statuses())) == {404}
    paths = {path for handler in HANDLERS for path in handler.paths}
    assert not [path for path in paths if "admin" in path]


def test_metrics_are_public_only_without_api_keys(own_template: Path, tmp_path: Path) -> None:
    async def status(**settings: object) -> Reply:
        app = new_app(own_template, tmp_path, store_url="none", **settings)
        return await ask(app, "GET", "/metrics", headers={"host": "localhost"})

    assert asyncio.run(status()).status == 200
    reply = asyncio.run(status(api_key=(API_KEY,)))
    assert reply.status == 404
    assert "--admin-port" in reply.json()["error"]["message"]


def test_errors_are_problem_details(keyed: AdminApp) -> None:
    async def replies() -> list[Reply]:
        return [
            await ask(keyed, "GET", "/admin/v1/nothing", key=READ),
            await ask(keyed, "PUT", "/admin/v1/settings", key=OPERATE),
            await ask(keyed, "GET", "/admin/v1/requests?limit=0", key=READ),
            await ask(keyed, "POST", "/admin/v1/loglevel", key=OPERATE, body={"level": "loud"}),
            await ask(keyed, "POST", "/admin/v1/load", key=OPERATE, body=[]),
        ]

    for reply, status in zip(asyncio.run(replies()), (404, 405, 422, 422, 422), strict=True):
        problem = reply.json()
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.status == problem["status"] == status
        assert problem["title"]
        assert problem["detail"].endswith(".")
        assert problem["type"].startswith("urn:quire:problem:")


@pytest.mark.parametrize(
    ("path", "body", "field", "detail"),
    [
        ("load", {"rate": 101}, "rate", "'rate' must be a number, at most 100."),
        ("load", [], None, "The body must be an object, not a list."),
        ("load", {"x": 1}, "x", "The body has no field 'x'; it may have profile, rate, seconds, "),
        ("loglevel", {}, "level", "'level' is missing."),
        ("loglevel", {"level": "trace"}, "level", "'level' must be one of debug, "),
    ],
)
def test_a_wrong_body_is_refused_in_words(
    keyed: AdminApp, path: str, body: object, field: str | None, detail: str
) -> None:
    reply = asyncio.run(ask(keyed, "POST", f"/admin/v1/{path}", key=OPERATE, body=body)).json()
    assert reply.get("field") == field
    assert reply["detail"].startswith(detail)


def test_a_body_that_is_too_large_is_refused(keyed: AdminApp) -> None:
    async def reply() -> Reply:
        large = {"level": "x" * 100_000}
        return await ask(keyed, "POST", "/admin/v1/loglevel", key=OPERATE, body=large)

    assert asyncio.run(reply()).status == 413


def test_a_refused_change_is_audited_and_a_refused_look_is_not(
    own_template: Path, tmp_path: Path
) -> None:
    keyed = admin_app(own_template, tmp_path, admin_key=KEYS, store_url="none")

    async def rows() -> list[dict[str, str]]:
        await ask(keyed, "POST", "/admin/v1/drain", key=READ, address=ELSEWHERE)
        await ask(keyed, "POST", "/admin/v1/drain")
        await ask(keyed, "GET", "/admin/v1/settings")
        found: list[dict[str, str]] = (await ask(keyed, "GET", "/admin/v1/audit", key=READ)).json()[
            "rows"
        ]
        return found

    newest, oldest = asyncio.run(rows())
    assert (oldest["actor"], oldest["address"], oldest["result"]) == (
        "bob",
        ELSEWHERE,
        "refused: scope",
    )
    assert (newest["actor"], newest["result"]) == ("unknown", "refused: key")
    assert newest["action"] == "POST /admin/v1/drain"


async def test_who_may_read_may_send_head(keyed: AdminApp, keyless: AdminApp) -> None:
    reply = await ask(keyed, "HEAD", "/admin/v1/overview", key=READ)
    assert (reply.status, reply.body) == (200, b"")
    assert (await ask(keyless, "HEAD", "/admin/v1/overview")).status == 200


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "X-Forwarded-Proto"]
)
async def test_without_keys_a_proxy_on_this_machine_opens_nothing(
    keyed: AdminApp, keyless: AdminApp, header: str
) -> None:
    headers = {header.lower(): "10.0.0.7"}
    reply = await ask(keyless, "GET", "/admin/v1/overview", headers=headers)
    assert reply.status == 403
    assert "--admin-key" in reply.json()["detail"]
    reply = await ask(keyed, "GET", "/admin/v1/overview", key=READ, headers=headers)
    assert reply.status == 200


async def test_a_deeply_nested_body_is_a_422(keyed: AdminApp) -> None:
    body = msgspec.Raw(b'{"slo_ttft":%b%b}' % (b"[" * 30_000, b"]" * 30_000))
    reply = await ask(keyed, "PATCH", "/admin/v1/settings", key=OPERATE, body=body)
    assert reply.status == 422
    assert "nested" in reply.json()["detail"]
