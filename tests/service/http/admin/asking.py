"""Sends requests to the admin application without a socket, from any address."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from service.admin_app import create_admin_app
from service.http.admin.application import AdminApp
from tests.service.http.apps import new_app

OPERATE, READ, API_KEY = "operate-key-1", "reader-key-1", "sk-user"
KEYS = (f"operate:ann={OPERATE}", f"read:bob={READ}")
HERE, ELSEWHERE = "127.0.0.1", "10.0.0.7"


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def admin_app(model: Path, folder: Path, **settings: Any) -> AdminApp:
    return create_admin_app(new_app(model, folder, **settings))  # type: ignore[arg-type]


async def ask(
    app: Any,
    method: str,
    path: str,
    *,
    key: str | None = None,
    address: str = HERE,
    body: object = None,
    headers: dict[str, str] | None = None,
    leaves: bool = True,
) -> Reply:
    """``leaves``: the client closes its connection after the request, which ends streams."""
    target, _, query = path.partition("?")
    sent = b"" if body is None else msgspec.json.encode(body)
    given = {"host": "localhost:18000", "content-type": "application/json", **(headers or {})}
    if key is not None:
        given["authorization"] = f"Bearer {key}"
    given["content-length"] = str(len(sent))
    messages = [{"type": "http.request", "body": sent, "more_body": False}]
    if leaves:
        messages.append({"type": "http.disconnect"})
    status, answered, pieces = 0, {}, []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        nonlocal status, answered
        if message["type"] == "http.response.start":
            status = message["status"]
            answered = {name.decode(): value.decode() for name, value in message["headers"]}
        elif message["type"] == "http.response.body":
            pieces.append(message["body"])

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": target,
        "raw_path": target.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": (address, 50_000),
        "server": ("127.0.0.1", 18_000),
    }
    await app(scope, receive, send)
    return Reply(status, answered, b"".join(pieces))
