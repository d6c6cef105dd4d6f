"""Reads a server's feed once and gives the same bytes to all browsers that look at it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import httpx
import msgspec

from dashboard.certificates import certificates
from dashboard.server import UnusableKeyError, authorization, engine_query, unreachable

# Messages of each server; a browser that reads more slowly misses the oldest ones.
_MOST_UNREAD = 8
_RETRY_SECONDS = 1.0
# Sent where there is nothing else: a browser that hears nothing for 10 s (common.js) takes its
# connection for lost, and opens another.
_ALIVE = b"event: alive\ndata: 1\n\n"
_ALIVE_SECONDS = 4.0
# How a message begins that has a map, and nothing else.
_MAP = b'data: {"kv":'
# The server sends a message every second.
_TIMEOUT = httpx.Timeout(5.0, connect=2.0)


class Unread:
    """What one browser has not read yet. Bounded for each server separately: replicas all send at
    the same moment, and the messages of many must not displace one another."""

    def __init__(self) -> None:
        # Only servers of which something is unread; the first is read next.
        self._messages: dict[Fanout, deque[bytes]] = {}
        self._ended = False
        self._changed = asyncio.Event()

    def put(self, server: Fanout, message: bytes) -> None:
        self._messages.setdefault(server, deque(maxlen=_MOST_UNREAD)).append(message)
        self._changed.set()

    def end(self) -> None:
        """Nothing more comes."""
        self._ended = True
        self._changed.set()

    async def get(self) -> bytes | None:
        """Return the next message, None at the end. Servers take turns."""
        while not self._messages:
            if self._ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        server = next(iter(self._messages))
        messages = self._messages.pop(server)
        message = messages.popleft()
        if messages:
            self._messages[server] = messages
        return message


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
        self._browsers: set[Unread] = set()
        self._task: asyncio.Task[None] | None = None
        self._last = b""
        self.connections = 0

    def __len__(self) -> int:
        """The number of browsers."""
        return len(self._browsers)

    def join(self, browser: Unread) -> None:
        """Send the feed to ``browser``, beginning with the newest message."""
        if self._last:
            browser.put(self, self._last)
        self._browsers.add(browser)
        if self._task is None:
            self._task = asyncio.create_task(self._read(), name=f"feed of {self._admin}")

    def leave(self, browser: Unread) -> None:
        """Reading stops when no browser is left."""
        self._browsers.discard(browser)
        if not self._browsers and self._task is not None:
            self._task.cancel()
            self._task = None
            self._last = b""

    def close(self) -> None:
        """End the feed of every browser."""
        if self._task is not None:
            self._task.cancel()
        for browser in self._browsers:
            browser.end()

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
        for browser in self._browsers:
            browser.put(self, self._last)


async def follow(fanouts: list[Fanout], seconds: float) -> AsyncGenerator[bytes, None]:
    """Yield the messages of several servers as they come, for ``seconds``, and signs of life
    between them."""
    browser = Unread()
    for fanout in fanouts:
        fanout.join(browser)
    now = asyncio.get_running_loop().time
    end = now() + seconds
    try:
        while (left := end - now()) > 0:
            message = await _next(browser, min(left, _ALIVE_SECONDS))
            if message is None:
                return
            yield message
    finally:
        for fanout in fanouts:
            fanout.leave(browser)


async def _next(browser: Unread, seconds: float) -> bytes | None:
    try:
        async with asyncio.timeout(seconds):
            return await browser.get()
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
