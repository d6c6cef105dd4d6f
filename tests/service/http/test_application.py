"""Every route exists, is counted under a known name, and is protected by the door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from litestar import get
from litestar.testing import TestClient

from service.http import application
from service.http.application import HANDLERS
from service.http.serves import serves
from tests.service.http.apps import EVIL, new_app


def test_a_route_without_a_handler_fails_at_start(
    own_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "HANDLERS", HANDLERS[1:])
    with pytest.raises(ValueError, match="POST /v1/chat/completions has 0 handlers"):
        new_app(own_template, tmp_path)


def test_a_handler_whose_route_is_not_declared_fails_at_start() -> None:
    with pytest.raises(LookupError, match="GET /v1/nothing is not in the table"):
        serves("GET /v1/nothing")


async def test_a_path_that_is_served_but_not_declared_is_denied(
    own_template: Path, tmp_path: Path
) -> None:
    """Whatever else registers it."""

    @get("/v1/secret")
    async def secret() -> str:
        return "secret"

    app = new_app(own_template, tmp_path)
    app.register(secret)
    with TestClient(app, base_url="http://quire.localhost") as client:
        assert client.get("/v1/secret").status_code == 404
        assert client.get("/v1/models").status_code == 200


def test_what_libraries_would_add_to_the_framework_is_left_out(
    own_template: Path, tmp_path: Path
) -> None:
    """Pydantic is installed here, and Litestar would load its plugins for it."""
    app = new_app(own_template, tmp_path)
    modules = [type(plugin).__module__ for plugin in app.plugins]
    assert not [name for name in modules if "pydantic" in name or "attrs" in name]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/chat/completions", {}, 404),
        ("/", {}, 404),
        ("/v1/responses", {"host": "evil.example"}, 403),
        ("/v1/responses", {"host": "localhost", "origin": EVIL}, 403),
    ],
)
async def test_a_websocket_is_refused_as_a_request_would_be(
    own_template: Path, tmp_path: Path, path: str, headers: dict[str, str], status: int
) -> None:
    app = new_app(own_template, tmp_path)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope: Any = {
        "type": "websocket",
        "path": path,
        "scheme": "ws",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 5),
    }
    await app(scope, receive, send)
    start, body = sent
    assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
    assert json.loads(body["body"])["error"]["message"]
