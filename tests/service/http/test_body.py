"""Tests of reading bodies: their types, and the memory that they may take while they arrive."""

from __future__ import annotations

import asyncio
import codecs
import gzip
import sys
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from service.errors import OverloadedError, SlowSenderError
from service.http.body import read_body
from service.http.scope import EXCHANGE
from service.http.server import HttpServer
from service.serving.exchange import Exchange
from service.supervision.listener import ServerAddress, open_listening_socket
from service.telemetry.observer import NoTelemetry
from service.telemetry.record import RequestRecord
from service.tenants.upload_room import FREE_BYTES, UploadRoom
from tests.service.http.apps import CHAT, new_app

LIMIT = 8 * FREE_BYTES


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_bodies_that_arrive_share_one_room(encoding: str) -> None:
    room = UploadRoom(LIMIT)
    half = gzip.compress(bytes(LIMIT - 1))[:-1] if encoding == "gzip" else bytes(LIMIT - 1)
    first = asyncio.create_task(_read(room, encoding, half, more=True))
    while not (first.done() or room.held == LIMIT - 1 - FREE_BYTES):
        await asyncio.sleep(0)
    assert not first.done()
    with pytest.raises(OverloadedError):
        await _read(room, encoding, half, more=True)
    assert await _read(room, "identity", b"{}", more=False) == b"{}"
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert room.held == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
@pytest.mark.parametrize(
    ("length", "chunks", "leaves", "status"),
    [
        (b"", b"zz\r\nfoo\r\n0\r\n\r\n", False, 400),
        (b"Content-Length: 2\r\n", b"{}", False, 400),
        (b"", b"5\r\n{", True, 499),
    ],
)
async def test_chunks_that_cannot_be_read_are_not_taken_for_a_client_that_left(
    length: bytes, chunks: bytes, leaves: bool, status: int, own_template: Path, tmp_path: Path
) -> None:
    app = new_app(own_template, tmp_path)
    listener = open_listening_socket("127.0.0.1", 0)
    address = ServerAddress.of(listener)
    server = HttpServer(app, listener)
    await server.start()
    watch = asyncio.create_task(app.state.connections.watch(address.port))
    try:
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            writer.write(head + length + b"\r\n" + chunks)
            if leaves:
                writer.write_eof()
            assert int((await reader.readline()).split()[1]) == status
            assert (b"chunks are malformed" in await reader.read()) is (status == 400)
            writer.close()
    finally:
        watch.cancel()
        await server.shut_down_app()
        assert await server.stop(20)


@pytest.mark.parametrize("pace", [1100, 4096, 16 * 1024])  # bytes a second
async def test_a_body_that_drips_ends_within_minutes(
    pace: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock(monkeypatch)
    with pytest.raises(SlowSenderError, match="too slowly"):
        await clock.read(8 << 20, pace)
    assert clock.elapsed < 7 * 60


@pytest.mark.parametrize(
    ("size", "pace"), [(8 << 20, 24 * 1024), (1 << 18, 1100), (1 << 26, 70_000)]
)
async def test_a_slow_link_gets_its_body_through(
    size: int, pace: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await _Clock(monkeypatch).read(size, pace) == size


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


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@pytest.mark.parametrize("path", [CHAT, "/tokenize", "/v1/messages", "/v1/responses"])
def test_a_byte_order_mark_is_left_out(
    client: TestClient[Litestar], path: str, encoding: str
) -> None:
    """The answers are those to the same body without it."""

    def answer(mark: bytes, text: bytes) -> str:
        body = gzip.compress(mark + text) if encoding == "gzip" else mark + text
        reply = client.post(path, content=body, headers={"Content-Encoding": encoding})
        return f"{reply.status_code} {reply.json()['error']['message']}"

    for text in (b"{}", b'{"model": "other", "prompt": "x", "input": "x"}', b"{", b""):
        assert answer(codecs.BOM_UTF8, text) == answer(b"", text)
    assert "not valid JSON" in answer(codecs.BOM_UTF8 * 2, b"{}")  # only one is


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("path", [CHAT, "/tokenize"])
def test_a_body_in_utf_16_is_refused_in_words(
    client: TestClient[Litestar], path: str, encoding: str
) -> None:
    reply = client.post(path, content='{"prompt": "é"}'.encode(encoding))
    assert reply.status_code == 400
    expected = "This is not UTF-8 (it looks like UTF-16 or UTF-32). Send JSON in UTF-8."
    assert reply.json()["error"]["message"] == expected


class _Clock:
    """A fake clock that advances only as pieces arrive: a second for each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.elapsed = 0.0
        loop = asyncio.get_running_loop()
        begin = loop.time()
        monkeypatch.setattr(loop, "time", lambda: begin + self.elapsed)

    async def read(self, size: int, pace: int) -> int:
        """The bytes of a body of ``size`` that come at ``pace`` each second."""
        left = size

        async def receive() -> Any:
            nonlocal left
            self.elapsed += 1
            await asyncio.sleep(0)
            piece = bytes(min(pace, left))
            left -= len(piece)
            return {"type": "http.request", "body": piece, "more_body": left > 0}

        scope: Any = {"headers": [], "state": {}}
        return len(await read_body(scope, receive, limit=size))


async def _read(room: UploadRoom, encoding: str, piece: bytes, *, more: bool) -> bytes:
    record = RequestRecord("req_1", "chat_completions", "POST", "/", 0.0, 0)
    exchange = Exchange(record, NoTelemetry(), upload_room=room)
    sent = False

    async def receive() -> Any:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()
        sent = True
        return {"type": "http.request", "body": piece, "more_body": more}

    scope: Any = {
        "headers": [(b"content-encoding", encoding.encode())],
        "state": {EXCHANGE: exchange},
    }
    return await read_body(scope, receive, limit=LIMIT)
