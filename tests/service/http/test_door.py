"""What stands before every route: whom it lets in from where, and how it is asked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from service.http.connections import RESERVED_DESCRIPTORS, connection_limit
from service.http.origins import OriginRules
from service.http.server import HttpServer
from service.supervision.listener import ServerAddress, open_listening_socket
from tests.service.test_app import new_app

EVIL = "http://evil.example"
PAGE = "http://localhost:3000"
CHAT = "/v1/chat/completions"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing is bound


def client_of(model: Path, folder: Path, **settings: Any) -> TestClient[Litestar]:
    return TestClient(new_app(model, folder, **settings), base_url="http://quire.localhost")


@pytest.fixture
def client(tiny_model: Path, tmp_path: Path) -> Iterator[TestClient[Litestar]]:
    """No keys, on loopback."""
    with client_of(tiny_model, tmp_path) as opened:
        yield opened


@pytest.fixture
def paged(tiny_model: Path, tmp_path: Path) -> Iterator[TestClient[Litestar]]:
    """With keys, and a page that may call."""
    with client_of(tiny_model, tmp_path, api_key=("key",), allowed_origins=(PAGE,)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST.:8000", 200),
        ("127.0.0.1:8000", 200),
        ("127.8.8.8", 200),
        ("[::1]:8000", 200),
        ("", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("10.0.0.1:8000", 403),
        ("[::2]", 403),
    ],
)
def test_without_keys_only_names_of_this_machine_are_answered(
    client: TestClient[Litestar], host: str, status: int
) -> None:
    for path in ("/v1/models", "/"):
        reply = client.get(path, headers={"Host": host})
        assert reply.status_code == status, reply.text
        if status == 403:
            assert "--allowed-hosts" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("settings", "host", "status"),
    [
        ({"allowed_hosts": ("llm.example",)}, "llm.example:80", 200),
        ({"allowed_hosts": ("llm.example",)}, "evil.example", 403),
        ({"allowed_hosts": ("*",)}, "evil.example", 200),
        ({"host": EVERYWHERE}, "llm.example", 200),
        ({"host": EVERYWHERE, "allowed_hosts": ("llm.example",)}, "evil.example", 403),
        ({"host": "::1"}, "evil.example", 403),
        ({"api_key": ("key",)}, "llm.example", 200),
    ],
)
def test_other_names_where_they_are_expected(
    settings: dict[str, Any], host: str, status: int
) -> None:
    given = {"host": "127.0.0.1", "allowed_hosts": (), **settings}
    rules = OriginRules.of(
        host=given["host"],
        keys="api_key" in given,
        allowed_hosts=given["allowed_hosts"],
        allowed_origins=(),
    )
    scope: Any = {"method": "GET", "headers": [(b"host", host.encode())]}
    if status == 200:
        rules.check(scope)
    else:
        with pytest.raises(Exception, match="evil"):
            rules.check(scope)


@pytest.mark.parametrize("kind", [None, "text/plain", "application/json"])
def test_a_page_of_another_origin_cannot_use_a_server_without_keys(
    client: TestClient[Litestar], kind: str | None
) -> None:
    headers = {"Origin": EVIL} | ({} if kind is None else {"Content-Type": kind})
    reply = client.post(CHAT, content=b"{}", headers=headers)
    assert reply.status_code == 403
    assert "--allowed-origins" in reply.json()["error"]["message"]
    own = client.post(CHAT, content=b"{}", headers={"Origin": "http://quire.localhost"})
    assert own.status_code == 400


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 400),
        ("application/json; charset=utf-8", 400),
        ("application/vnd.api+json", 400),
        (None, 400),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("Text/Plain;charset=UTF-8", 415),
    ],
)
def test_a_form_s_content_type_is_refused(
    client: TestClient[Litestar], kind: str | None, status: int
) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    reply = client.post(CHAT, content=b"{}", headers=headers)
    assert reply.status_code == status
    if status == 415:
        assert "Content-Type: application/json" in reply.json()["error"]["message"]


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
def test_an_encoding_that_is_not_known_is_named(
    client: TestClient[Litestar], encoding: str
) -> None:
    reply = client.post(CHAT, content=b"{}", headers={"Content-Encoding": encoding})
    assert reply.status_code == 415
    assert "gzip or deflate" in reply.json()["error"]["message"]


def test_a_preflight_is_answered_without_a_key(paged: TestClient[Litestar]) -> None:
    asked = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,x-stainless-os,X-Own",
    }
    for path in (CHAT, "/chat/completions", "/nope"):
        reply = paged.options(path, headers=asked)
        assert reply.status_code == 204
        assert reply.headers["access-control-allow-origin"] == PAGE
        assert "POST" in reply.headers["access-control-allow-methods"]
        listed = reply.headers["access-control-allow-headers"].split(", ")
        assert {"authorization", "content-type", "x-api-key", "x-stainless-os", "x-own"} <= set(
            listed
        )
        other = paged.options(path, headers={**asked, "Origin": EVIL})
        assert "access-control-allow-origin" not in other.headers


def test_answers_and_errors_carry_cors_headers(paged: TestClient[Litestar]) -> None:
    key = {"Authorization": "Bearer key"}
    for path, headers, status in (
        ("/v1/models", key, 200),
        ("/v1/models", {}, 401),
        ("/nope", key, 404),
        ("/health", {}, 503),
        ("/openapi.json", {}, 200),
    ):
        reply = paged.get(path, headers={**headers, "Origin": PAGE})
        assert reply.status_code == status
        assert reply.headers["access-control-allow-origin"] == PAGE
        assert "x-request-id" in reply.headers["access-control-expose-headers"]
        assert "Origin" in reply.headers["vary"]
        other = paged.get(path, headers={**headers, "Origin": EVIL})
        assert "access-control-allow-origin" not in other.headers


def test_by_default_nothing_is_said_to_pages(client: TestClient[Litestar]) -> None:
    reply = client.get("/v1/models", headers={"Origin": PAGE})
    assert not [name for name in reply.headers if name.startswith("access-control")]


def test_head_is_served_wherever_get_is(client: TestClient[Litestar]) -> None:
    document = client.get("/openapi.json").json()
    paths = [path for path, operations in document["paths"].items() if "get" in operations]
    assert {"/v1/models", "/metrics", "/docs", "/openapi.json", "/health"} <= set(paths)
    for path in paths:
        name = re.sub(r"\{\w+\}", "none", path)
        head, get = client.head(name), client.get(name)
        assert head.status_code == get.status_code
        assert head.content == b""
        if path != "/metrics":  # which counts the first of the two
            assert head.headers["content-length"] == str(len(get.content))
    assert "HEAD" in client.post("/v1/models").headers["allow"]
    assert client.head(CHAT).status_code == 405


@pytest.mark.parametrize(
    "path",
    [
        *("/chat/completions", "/completions", "/responses", "/messages", "/messages/count_tokens"),
        *("/embeddings", "/rerank", "/score"),
    ],
)
def test_paths_are_known_without_their_version(client: TestClient[Litestar], path: str) -> None:
    """An empty object lacks the same field either way."""
    short, full = (client.post(p, content=b"{}") for p in (path, f"/v1{path}"))
    assert short.status_code == full.status_code == 400
    assert ("type" in short.json()) == path.startswith("/messages")
    message = full.json()["error"]["message"]
    assert short.json()["error"]["message"] == message


def test_models_are_listed_without_the_version_too(client: TestClient[Litestar]) -> None:
    [card] = client.get("/models").json()["data"]
    assert client.get(f"/models/{card['id']}").json() == card


def test_what_no_route_takes_has_an_id_too(client: TestClient[Litestar]) -> None:
    reply = client.get("/v1/messages/batches")
    assert reply.status_code == 404
    assert reply.json()["request_id"] == reply.headers["request-id"]
    assert reply.json()["request_id"].startswith("req_")


def test_azures_header_bears_a_key(paged: TestClient[Litestar]) -> None:
    assert paged.get("/v1/models", headers={"api-key": "key"}).status_code == 200
    assert paged.get("/v1/models", headers={"api-key": "wrong"}).status_code == 401


def test_anthropics_sdk_reads_the_models(tiny_model: Path, tmp_path: Path) -> None:
    names = ("a", "b", "c")
    with client_of(tiny_model, tmp_path, served_model_name=names) as opened:

        def through(request: httpx2.Request) -> httpx2.Response:
            reply = opened.request(
                request.method, request.url.raw_path.decode(), headers=dict(request.headers)
            )
            return httpx2.Response(reply.status_code, headers=reply.headers, content=reply.content)

        sdk = anthropic.Anthropic(
            base_url="http://quire.localhost",
            api_key="key",
            http_client=httpx2.Client(transport=httpx2.MockTransport(through)),
        )
        listed = list(sdk.models.list(limit=2))
        assert [(model.type, model.id, model.display_name) for model in listed] == [
            ("model", name, name) for name in names
        ]
        assert listed[0].created_at.year >= 2020
        assert sdk.models.retrieve("b").id == "b"
        backwards = sdk.models.list(before_id="c", limit=1)
        assert ([model.id for model in backwards.data], backwards.has_more) == (["b"], True)
        with pytest.raises(anthropic.BadRequestError):
            sdk.models.list(after_id="none")
        assert opened.get("/v1/models").json()["object"] == "list"


def test_connections_leave_descriptors_for_everything_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for soft in (150, 1024, 1 << 30):
        monkeypatch.setattr("resource.getrlimit", lambda _, soft=soft: (soft, soft))
        assert connection_limit() <= soft - RESERVED_DESCRIPTORS


async def test_idle_connections_make_room_for_those_that_ask(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a request that is in progress is not ended for it."""
    most = 24
    monkeypatch.setattr("service.http.application.connection_limit", lambda: most)
    app = new_app(tiny_model, tmp_path)
    listener = open_listening_socket("127.0.0.1", 0)
    address = ServerAddress.of(listener)
    server = HttpServer(app, listener, max_connections=most)
    await server.start()
    watch = asyncio.create_task(app.state.connections.watch(address.port))
    head = b" HTTP/1.1\r\nHost: localhost\r\n"
    writers = []
    try:
        async with asyncio.timeout(60):
            busy, writer = await asyncio.open_connection(address.host, address.port)
            writers.append(writer)
            writer.write(b"POST /tokenize" + head + b"Content-Length: 2\r\n\r\n{")
            while not app.state.drain.in_flight:
                await asyncio.sleep(0.01)
            for _ in range(3 * most):
                _, idle = await asyncio.open_connection(address.host, address.port)
                writers.append(idle)
            reader, asking = await asyncio.open_connection(address.host, address.port)
            writers.append(asking)
            asking.write(b"GET /health/live" + head + b"\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.write(b"}")
            assert (await busy.readline()).startswith(b"HTTP/1.1 400")
    finally:
        for writer in writers:
            writer.close()
        watch.cancel()
        await server.shut_down_app()
        assert await server.stop(20)
