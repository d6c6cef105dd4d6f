"""Every route exists, is counted under a known name, and is protected by the door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from observability.outcomes import ROUTES
from service.http.application import HANDLERS
from tests.service.http.apps import EVIL, new_app


def test_every_route_is_counted_under_a_known_name_or_is_for_operators() -> None:
    for handler in HANDLERS:
        counted, is_open = handler.opt.get("route"), handler.opt.get("open", False)
        assert (counted is None) == is_open, handler.paths
        assert counted in (None, *ROUTES), handler.paths


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
