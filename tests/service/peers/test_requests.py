"""Only the worker that made an id is asked about it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from service.errors import WorkerLostError
from service.ids import Ids
from service.peers.peers import Peers
from service.peers.requests import ABORT, PeerQuestion, ask_owner

THEIRS = Ids(1, 2).new("req_")


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[tuple[Peers, list[bytes]]]:
    """Worker 0's view, with a worker 1 that answers so, and what that is asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        asked.append(head.split(b"\r\n")[0])
        asked.append(await reader.readexactly(length))
        writer.write(answer)
        writer.close()

    with tempfile.TemporaryDirectory(prefix="q-") as folder:
        server = await asyncio.start_unix_server(serve, f"{folder}/api-1.sock")
        try:
            yield Peers(Ids(0, 2), Path(folder)), asked
        finally:
            server.close()
            await server.wait_closed()


async def test_the_owner_answers() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi") as (peers, asked):
        assert await ask_owner(peers, ABORT, THEIRS, "key") == b"hi"
        assert asked[0] == b"POST /peer/abort HTTP/1.1"
        assert msgspec.msgpack.decode(asked[1], type=PeerQuestion) == PeerQuestion(THEIRS, "key")
        assert peers.forwarded == 0


async def test_what_the_owner_does_not_have_does_not_exist() -> None:
    async with answering(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n") as (peers, _):
        assert await ask_owner(peers, ABORT, THEIRS, "key") is None


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 500 Error\r\ncontent-length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"]
)
async def test_an_owner_that_cannot_answer_is_an_error(answer: bytes) -> None:
    async with answering(answer) as (peers, _):
        with pytest.raises(WorkerLostError):
            await ask_owner(peers, ABORT, THEIRS, "key")
        assert peers.forwarded == 0


async def test_without_another_owner_nothing_is_asked(tmp_path: Path) -> None:
    peers = Peers(Ids(0, 2), tmp_path)  # without any socket
    for identity in (peers.ids.new("req_"), "req_x", Ids(5, 9).new("req_"), THEIRS):
        assert await ask_owner(peers, ABORT, identity, "key") is None
