"""Checks before every route: paths, methods and the headers of every answer."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from service.admission.drain import Drain
from service.http import door
from service.http.connections import Peer
from service.http.door import _Receiver
from tests.service.http.apps import CHAT, EVIL, PAGE


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


async def test_who_waits_for_a_client_to_leave_can_be_cancelled() -> None:
    """Though the client has left meanwhile."""
    never, peer = asyncio.Event(), Peer(("127.0.0.1", 1))
    bodies = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Any:
        if not bodies:
            await never.wait()
        return bodies.pop()

    receiver = _Receiver(receive, peer)
    assert (await receiver())["type"] == "http.request"
    told = asyncio.create_task(receiver())
    await asyncio.sleep(0)
    peer.note_left()
    assert (await told)["type"] == "http.disconnect"
    cancelled = asyncio.create_task(receiver())
    await asyncio.sleep(0)
    peer.note_left()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert not peer.leaving


async def test_only_so_much_of_an_unwanted_body_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it never ends or never comes."""
    read = 0

    async def endless() -> Any:
        nonlocal read
        read += 1
        return {"type": "http.request", "body": bytes(1 << 20), "more_body": True}

    assert not await _Receiver(endless, Peer(("127.0.0.1", 1))).discard(None)
    assert read == door._DISCARDED_BYTES >> 20

    async def silent() -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(door, "_SILENT_SECONDS", 0.01)
    assert not await _Receiver(silent, Peer(("127.0.0.1", 1))).discard(None)
    monkeypatch.setattr(door, "_DISCARDED_BYTES", 1 << 60)
    drain = Drain(60)
    drain.begin()
    async with asyncio.timeout(door._DISCARD_SECONDS / 2):
        assert not await _Receiver(endless, Peer(("127.0.0.1", 1))).discard(drain)
