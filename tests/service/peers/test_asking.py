"""What another worker is asked, and that only a complete, well-formed answer counts as one."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from service.peers.asking import (
    PeerAnswer,
    PeerLostError,
    PeerUnreachableError,
    connected,
)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[Path]:
    """A socket whose connections are served so."""
    with tempfile.TemporaryDirectory(prefix="q-") as folder:
        path = Path(folder) / "api-1.sock"
        server = await asyncio.start_unix_server(serve, str(path))
        try:
            yield path
        finally:
            server.close()
            await server.wait_closed()


@asynccontextmanager
async def answering(answer: bytes, *, method: str = "GET") -> AsyncIterator[PeerAnswer]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with serving(serve) as path, connected(path) as connection:
        yield await connection.ask(method, b"/x")


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (HEAD + b"content-length: 5\r\n\r\nhello", b"hello"),
        (HEAD + b"Content-Length:0\r\n\r\n", b""),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", b"hello!"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 404\r\ncontent-length: 1\r\n\r\nx", b"x"),
    ],
)
async def test_a_complete_answer_is_read_to_its_end(answer: bytes, body: bytes) -> None:
    async with answering(answer) as found:
        assert await found.whole(100) == body


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        HEAD,
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"content-length: 0\r\n\r\n",
        b"hello\r\n\r\n",
        HEAD + b"content-length : 0\r\n\r\n",
        HEAD + b"a: b\r\n c\r\ncontent-length: 0\r\n\r\n",
        HEAD + b"\r\n",  # how long is it?
        HEAD + b"content-length: -1\r\n\r\n",
        HEAD + b"content-length: 1_0\r\n\r\n0123456789",
        HEAD + b"content-length: 5\r\n\r\nhell",
        HEAD + b"content-length: 101\r\n\r\n" + bytes(101),
        HEAD + b"transfer-encoding: chunked\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello",
        HEAD + b"transfer-encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n-1\r\nhello\r\n0\r\n\r\n",
        HEAD + b"x: " + bytes(70_000) + b"\r\n\r\n",
    ],
)
async def test_anything_else_is_a_lost_worker(answer: bytes) -> None:
    with pytest.raises(PeerLostError):
        async with answering(answer) as found:
            await found.whole(100)


async def test_the_answer_to_head_has_no_body() -> None:
    async with answering(HEAD + b"content-length: 5\r\n\r\n", method="HEAD") as found:
        assert found.header(b"content-length") == b"5"
        assert await found.whole(0) == b""


async def test_a_request_is_one_request() -> None:
    asked = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.extend(await reader.readuntil(b"\r\n\r\n"))
        asked.extend(await reader.readexactly(4))
        writer.write(HEAD + b"content-length: 0\r\n\r\n")
        writer.close()

    headers = [(b"host", b"a"), (b"connection", b"upgrade"), (b"content-length", b"99")]
    async with serving(serve) as path:
        async with connected(path) as connection:
            answer = await connection.ask("POST", b"/x?y=z", headers, b"body")
            assert await answer.whole(0) == b""
        assert bytes(asked) == (
            b"POST /x?y=z HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbody"
        )
        for target, extra in (
            (b"/a b", (b"x", b"y")),
            (b"/a\r\nx: y", (b"x", b"y")),
            (b"/a", (b"x", b"y\r\nz: 1")),
            (b"/a", (b"x", b"y\nz: 1")),
        ):
            async with connected(path) as connection:
                with pytest.raises(ValueError, match="contains a"):
                    await connection.ask("GET", target, [extra])


async def test_without_a_listener_nothing_was_sent(tmp_path: Path) -> None:
    with pytest.raises(PeerUnreachableError):
        async with connected(tmp_path / "no.sock"):
            pass


async def test_silence_ends_the_wait_for_an_answer() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        gone.set()

    async with serving(serve) as path:
        async with connected(path) as connection:
            with pytest.raises(PeerLostError, match=r"did not answer within 0\.05 s"):
                await connection.ask("GET", b"/x", seconds=0.05)
        await asyncio.wait_for(gone.wait(), 10)


async def test_an_answer_is_not_read_faster_than_it_is_taken() -> None:
    """What waits for a reader that does not read stays with the worker that answers."""
    written = 0
    piece = bytes(65536)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"10000\r\n%b\r\n" % piece)
                await writer.drain()
                written += len(piece)
        except ConnectionError:
            writer.close()

    async with serving(serve) as path, connected(path) as connection:
        pieces = (await connection.ask("GET", b"/x")).pieces()
        assert await anext(pieces) == piece
        before = -1
        while before != written:  # until it no longer grows
            before = written
            await asyncio.sleep(0.05)
        assert written < 2_000_000
        assert await anext(pieces) == piece
        await pieces.aclose()
