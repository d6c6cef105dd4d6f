"""Streams that the tour runs against the server, and what their clients saw."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from dashboard.sse import EventDecoder

# A stream may pause while an engine restarts.
_TIMEOUT = httpx.Timeout(30.0, read=180.0)


@dataclass(slots=True)
class Watched:
    """One stream. ``status``: of HTTP, 0 before the answer. ``longest_gap``: seconds between two
    pieces of text. ``is_complete``: it ended as a stream should."""

    status: int = 0
    pieces: int = 0
    first: float | None = None
    last: float = 0.0
    longest_gap: float = 0.0
    is_complete: bool = False
    error: str = ""

    def piece(self, now: float) -> None:
        """Record that text arrived."""
        if self.first is None:
            self.first = now
        else:
            self.longest_gap = max(self.longest_gap, now - self.last)
        self.last = now
        self.pieces += 1


class Traffic:
    """Clients of one server. Every stream ever begun is in ``watched``."""

    def __init__(self, url: str) -> None:
        limits = httpx.Limits(max_connections=None)
        self._client = httpx.AsyncClient(base_url=url, timeout=_TIMEOUT, limits=limits)
        self.watched: list[Watched] = []

    async def close(self) -> None:
        await self._client.aclose()

    async def stream(self, path: str, key: str, body: Mapping[str, Any]) -> Watched:
        """Read one stream to its end. Failures are recorded, not raised."""
        watched = Watched()
        self.watched.append(watched)
        headers = {"authorization": f"Bearer {key}"}
        try:
            async with self._client.stream(
                "POST", path, json={**body, "stream": True}, headers=headers
            ) as reply:
                watched.status = reply.status_code
                await _read(reply, watched)
        except httpx.HTTPError as error:
            watched.error = type(error).__name__
        return watched

    def begin_measuring(self) -> None:
        """Forget the gaps so far; those that last are counted from now."""
        now = time.monotonic()
        for watched in self.watched:
            watched.longest_gap = 0.0
            watched.last = max(watched.last, now)


async def _read(reply: httpx.Response, watched: Watched) -> None:
    decoder = EventDecoder()
    async for chunk in reply.aiter_bytes():
        for data in decoder.feed(chunk):
            if data == "[DONE]":
                watched.is_complete = not watched.error
            elif data.startswith('{"error"'):
                watched.error = "an error in the stream"
            elif '"role":' not in data:  # that chunk comes before any text
                watched.piece(time.monotonic())
