"""Reads a server's feed once and gives the same bytes to all browsers that look at it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import httpx
import msgspec

from dashboard.certificates import certificates
from dashboard.server import UnusableKeyError, authorization, engine_query, unreachable

_MOST_BEHIND = 8  # messages; a browser that reads no more is given the newest instead
_RETRY_SECONDS = 1.0
_END = b""
# Sent where there is nothing else: a browser that hears nothing for 10 s (common.js) takes its
# connection for lost, and opens another.
_ALIVE = b"event: alive\ndata: 1\n\n"
_ALIVE_SECONDS = 4.0
# How a message begins that has a map, and nothing else.
_MAP = b'data: {"kv":'
# The server sends a message every second.
_TIMEOUT = httpx.Timeout(5.0, connect=2.0)


class Fanout:
    """``index``: the server's place in the settings, by which a browser distinguishes servers.
    ``key``: called for each connection, since a visitor may have typed another one. ``kv``: pass on
    maps of this engine's KV cache, and nothing else. ``refused``: called with a key that the server
    does not accept."""

    def __init__(
        self,
        index: int,
        admin: str,
        key: Callable[[], str],
        *,
        kv: int | None = None,
        refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._event = f"event: s{index}\n".encode()
        self._url = f"{admin}/admin/v1/feed"
        self._query = {} if kv is None else {"kv": "1", **engine_query(kv)}
        self._wanted = b"" if kv is None else _MAP
        self._admin = admin
        self._key = key
        self._refused = refused
        self._queues: set[asyncio.Queue[bytes]] = set()
        self._task: asyncio.Task[None] | None = None
        self._last = b""
        self.connections = 0

    def __len__(self) -> int:
        """The number of browsers."""
        return len(self._queues)

    def join(self, queue: asyncio.Queue[bytes]) -> None:
        """Have the feed put into ``queue``, beginning with the newest message."""
        if self._last:
            queue.put_nowait(self._last)
        self._queues.add(queue)
        if self._task is None:
            self._task = asyncio.create_task(self._read(), name=f"feed of {self._admin}")

    def leave(self, queue: asyncio.Queue[bytes]) -> None:
        """Reading stops when no reader is left."""
        self._queues.discard(queue)
        if not self._queues and self._task is not None:
            self._task.cancel()
            self._task = None
            self._last = b""

    def close(self) -> None:
        """End the feed of every browser."""
        if self._task is not None:
            self._task.cancel()
        for queue in self._queues:
            queue.put_nowait(_END)

    def close_soon(self) -> None:
        """The same from any thread."""
        if self._task is not None:
            self._task.get_loop().call_soon_threadsafe(self.close)

    async def _read(self) -> None:
        async with httpx.AsyncClient(verify=certificates(), timeout=_TIMEOUT) as client:
            while True:
                self._send(_away(await self._follow(client)))
                await asyncio.sleep(_RETRY_SECONDS)

    async def _follow(self, client: httpx.AsyncClient) -> str:
        """Pass on messages until the connection ends; return why it did."""
        self.connections += 1
        key = self._key()
        try:
            async with client.stream(
                "GET", self._url, params=self._query, headers=authorization(key)
            ) as response:
                if response.is_error:
                    if response.status_code in (401, 403):
                        self._refused(key)
                    return f"{self._admin} returned status {response.status_code}."
                async for message in _messages(response.aiter_bytes()):
                    if message.startswith(self._wanted):
                        self._send(message)
        except httpx.TransportError as error:
            return unreachable(self._admin, error)
        except UnusableKeyError as error:
            return str(error)
        return f"{self._admin} closed the feed."

    def _send(self, message: bytes) -> None:
        self._last = self._event + message + b"\n\n"
        for queue in self._queues:
            if queue.qsize() >= _MOST_BEHIND:
                with contextlib.suppress(asyncio.QueueEmpty):
                    queue.get_nowait()
            queue.put_nowait(self._last)


async def follow(fanouts: list[Fanout], seconds: float) -> AsyncGenerator[bytes, None]:
    """Yield the messages of several servers as they come, for ``seconds``, and signs of life
    between them."""
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    for fanout in fanouts:
        fanout.join(queue)
    now = asyncio.get_running_loop().time
    end = now() + seconds
    try:
        while (left := end - now()) > 0:
            message = await _next(queue, min(left, _ALIVE_SECONDS))
            if message is _END:
                return
            yield message
    finally:
        for fanout in fanouts:
            fanout.leave(queue)


async def _next(queue: asyncio.Queue[bytes], seconds: float) -> bytes:
    try:
        async with asyncio.timeout(seconds):
            return await queue.get()
    except TimeoutError:
        return _ALIVE


async def _messages(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Split a stream of server-sent events; comments are left out."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n\n")
        for message in whole:
            if message.startswith(b"data:"):
                yield message


def _away(reason: str) -> bytes:
    return b"data: " + msgspec.json.encode({"away": reason})
