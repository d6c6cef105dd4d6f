"""What the dashboard has of each server for all its visitors: feed, history, admin key."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from urllib.parse import urlencode

import httpx

from dashboard.certificates import certificates
from dashboard.fanout import Fanout
from dashboard.server import authorization, engine_query
from dashboard.settings import ADMIN_KEY_VARIABLE, Server, watched

# Ranges of the Live page in minutes, and the seconds that each of their samples represents.
RANGES = {5: 1, 15: 3, 60: 12}
MOST_PREFIXES = 100
_FRESH_SECONDS = 1.0
_MOST_BYTES = 8 * 1024 * 1024


class Feeds:
    """``key``: the admin key for what all see; empty: the first that a visitor typed and the server
    accepted."""

    def __init__(self, servers: list[Server], key: str) -> None:
        self.servers = servers
        self._key = key
        self._learned = [""] * len(servers)
        self._fanouts: dict[tuple[int, int | None], Fanout] = {}
        self._kept: dict[tuple[int, str], tuple[float, bytes]] = {}
        self._locks: dict[tuple[int, str], asyncio.Lock] = {}

    def learn_key(self, index: int, key: str) -> None:
        """Use ``key``, which the server accepted, if there is none yet."""
        self._learned[index] = self._learned[index] or key

    def forget_key(self, index: int, key: str) -> None:
        """The server no longer accepts ``key``: the next one that a visitor types is used."""
        if self._learned[index] == key:
            self._learned[index] = ""

    def key(self, index: int) -> str:
        return self._key or self._learned[index]

    def fanout(self, index: int, *, kv: int | None) -> Fanout:
        """Return the server's feed, or that of the KV maps of one of its engines."""
        name = (index, kv)
        if name not in self._fanouts:
            self._fanouts[name] = Fanout(
                index,
                self.servers[index].admin,
                lambda: self.key(index),
                kv=kv,
                refused=lambda key: self.forget_key(index, key),
            )
        return self._fanouts[name]

    async def history(self, index: int, minutes: int) -> bytes:
        """Return the server's series of the last ``minutes``: the same bytes for all who ask within
        a second. Raises httpx.HTTPError, UnusableKeyError."""
        return await self._shared(index, f"series?from={minutes}m&step={RANGES[minutes]}")

    async def prefixes(self, index: int, engine: int) -> bytes:
        """Return the tree of prefixes that an engine shares, likewise."""
        query = {"limit": MOST_PREFIXES, **engine_query(engine)}
        return await self._shared(index, f"kv/prefixes?{urlencode(query)}")

    async def kv_times(self, index: int, engine: int) -> bytes:
        """Return the times of the KV maps of an engine that the server keeps, likewise."""
        query = urlencode(engine_query(engine))
        return await self._shared(index, f"kv/times?{query}" if query else "kv/times")

    async def kv_map(self, index: int, engine: int, at: float) -> bytes:
        """Return the engine's last KV map that was made by then. Raises httpx.HTTPError,
        UnusableKeyError."""
        return await self._fetch(index, f"kv?{urlencode({'at': at, **engine_query(engine)})}")

    async def _shared(self, index: int, path: str) -> bytes:
        name = (index, path)
        async with self._locks.setdefault(name, asyncio.Lock()):
            made, body = self._kept.get(name, (0.0, b""))
            if time.monotonic() - made > _FRESH_SECONDS:
                body = await self._fetch(index, path)
                self._kept[name] = (time.monotonic(), body)
            return body

    async def _fetch(self, index: int, path: str) -> bytes:
        async with httpx.AsyncClient(verify=certificates(), timeout=5.0) as client:
            response = await client.get(
                f"{self.servers[index].admin}/admin/v1/{path}",
                headers=authorization(self.key(index)),
            )
            response.raise_for_status()
            return response.content[:_MOST_BYTES]

    def close(self) -> None:
        for fanout in self._fanouts.values():
            fanout.close()

    def matches(self, servers: list[Server], key: str) -> bool:
        return (self.servers, self._key) == (servers, key)

    def successor(self, servers: list[Server], key: str) -> Feeds:
        """Return the feeds of other servers, with what is known of those that are the same. The
        browsers' feeds from here end, so that they connect again."""
        found = Feeds(servers, key)
        keys = dict(zip(self.servers, self._learned, strict=True))
        found._learned = [keys.get(server, "") for server in servers]
        for fanout in self._fanouts.values():
            fanout.close_soon()
        return found


_lock = threading.Lock()
_current: list[Feeds] = []


def feeds() -> Feeds:
    """Those of this process, as its environment and DNS name the servers."""
    servers, key = watched(os.environ), os.environ.get(ADMIN_KEY_VARIABLE, "")
    with _lock:
        if not _current:
            _current.append(Feeds(servers, key))
        elif not _current[0].matches(servers, key):
            _current[0] = _current[0].successor(servers, key)
        return _current[0]
