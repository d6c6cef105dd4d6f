"""Asks another API worker over its unix socket: HTTP/1.1, one request a connection.

What answers is this program's own HTTP server, so little of HTTP is needed; anything else is an
error. Only one piece of the answer is held, besides what the kernel and the stream reader buffer:
the worker that answers waits until its bytes are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from pathlib import Path

HeaderPairs = list[tuple[bytes, bytes]]
"""Names in lower case, and values."""

CONNECT_SECONDS = 2.0
# Until the head of the answer. A worker whose event loop hangs for longer is killed.
HEAD_SECONDS = 30.0
_BUFFER_BYTES = 64 * 1024  # of a reader, also the most that a head may have
_PIECE_BYTES = 64 * 1024
_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([2-5][0-9]{2})(?: [ -~]*)?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")
_CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,8}")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_END = b"\r\n"
# Of one connection, not of the message (RFC 9110, 7.6.1).
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection te trailer transfer-encoding upgrade expect".split()
)


class PeerUnreachableError(Exception):
    """The worker could not be connected to; it got nothing."""


class PeerLostError(Exception):
    """The worker ended or was silent before its answer was complete."""


class PeerAnswer:
    """The answer's head has been read; ``pieces`` reads its body, once. ``is_whole``: the piece
    that it last yielded is known to be the last one."""

    def __init__(self, reader: asyncio.StreamReader, head: bytes, *, has_body: bool) -> None:
        """Raises PeerLostError for an invalid head."""
        first, *lines = head.split(_END)[:-2]
        status = _STATUS_LINE.fullmatch(first)
        if status is None:
            raise PeerLostError("its answer has no status")
        self.status = int(status[1])
        self.headers: HeaderPairs = [_header(line) for line in lines]
        self._reader = reader
        self._has_body = has_body and self.status not in (204, 304)
        self.is_whole = False

    def header(self, name: bytes) -> bytes:
        """Return a header's value; empty if it is missing."""
        return next((value for key, value in self.headers if key == name), b"")

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it comes, in pieces of at most 64 KiB. Raises PeerLostError if its end
        is missing."""
        if not self._has_body:
            return
        try:
            if self.header(b"transfer-encoding") == b"chunked":
                async for piece in self._chunks():
                    yield piece
                return
            length = self.header(b"content-length")
            if _LENGTH.fullmatch(length) is None:
                raise PeerLostError("its answer has no length")
            left = int(length)
            async for piece in self._read(left):
                left -= len(piece)
                self.is_whole = not left
                yield piece
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            raise PeerLostError("it ended in the middle of its answer") from error

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            line = (await self._reader.readuntil(_END)).removesuffix(_END)
            if _CHUNK_SIZE.fullmatch(line) is None:
                raise PeerLostError("its answer is not in chunks")
            size = int(line, 16)
            async for piece in self._read(size):
                yield piece
            if await self._reader.readexactly(len(_END)) != _END:
                raise PeerLostError("its answer is not in chunks")
            if size == 0:
                return

    async def _read(self, size: int) -> AsyncIterator[bytes]:
        while size:
            piece = await self._reader.readexactly(min(size, _PIECE_BYTES))
            size -= len(piece)
            yield piece

    async def whole(self, most: int) -> bytes:
        """Return the body. Raises PeerLostError, also for one of more than ``most`` bytes."""
        pieces, size = [], 0
        async for piece in self.pieces():
            size += len(piece)
            if size > most:
                raise PeerLostError(f"its answer has more than {most} bytes")
            pieces.append(piece)
        return b"".join(pieces)


@contextlib.asynccontextmanager
async def connected(path: Path) -> AsyncIterator[PeerConnection]:
    """Connect to a worker's socket; the connection is closed at the end. Raises
    PeerUnreachableError."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_unix_connection(str(path), limit=_BUFFER_BYTES)
    except (OSError, TimeoutError) as error:
        raise PeerUnreachableError(str(error)) from error
    try:
        yield PeerConnection(reader, writer)
    finally:
        writer.transport.abort()


class PeerConnection:
    """Call ``ask`` once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(
        self,
        method: str,
        target: bytes,
        headers: Iterable[tuple[bytes, bytes]] = (),
        body: bytes = b"",
        *,
        seconds: float = HEAD_SECONDS,
    ) -> PeerAnswer:
        """Send a request; return the answer once its head is here, in at most ``seconds``.

        Raises PeerLostError.
        """
        request = _request(method, target, headers, body)
        try:
            async with asyncio.timeout(seconds):
                self._writer.write(request)
                await self._writer.drain()
                head = await self._reader.readuntil(_END + _END)
        except TimeoutError as error:
            raise PeerLostError(f"it did not answer within {seconds:g} s") from error
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            raise PeerLostError("it ended before it answered") from error
        return PeerAnswer(self._reader, head, has_body=method != "HEAD")


def _request(
    method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes
) -> bytes:
    lines = [b"%b %b HTTP/1.1" % (method.encode(), target)]
    lines += [
        b"%b: %b" % (name, value)
        for name, value in headers
        if name not in HOP_BY_HOP and name != b"content-length"
    ]
    lines += [b"content-length: %d" % len(body), b"connection: close"]
    # The HTTP server that read the request lets none of these in; without them, what is sent is one
    # request.
    if any(b"\r" in line or b"\n" in line or b"\0" in line for line in lines):
        raise ValueError("a header contains a line break")
    if b" " in target:
        raise ValueError("the path contains a space")
    return _END.join([*lines, b"", body])


def _header(line: bytes) -> tuple[bytes, bytes]:
    found = _HEADER.fullmatch(line)
    if found is None:
        raise PeerLostError("its answer has an invalid header")
    return found[1].lower(), found[2]
