"""Serves metrics pages to any number of scrapers at a bounded cost.

A page takes about a millisecond of the event loop. It is generated in pieces, so that streams
continue in between, and shared by all who are waiting for one. Pages are generated immediately up
to ``BURST``, then at ``PAGES_PER_SECOND``; more frequent requests wait. A page is never older than
the request for it, so it includes everything counted before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

BURST = 20
PAGES_PER_SECOND = 5.0

# The pieces of a page in the format that an Accept header prefers, and its content type. Nothing is
# read before the first piece is requested.
Render = Callable[[str], tuple[Iterator[bytes], str]]


class ScrapePages:
    """Call all methods on one event loop."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._next: dict[str, asyncio.Task[bytes]] = {}  # not begun yet, by content type
        self._making = asyncio.Lock()
        self._credit = float(BURST)
        self._credited = 0.0  # when, by the loop's clock
        self.made = 0

    async def page(self, accept: str) -> tuple[bytes, str]:
        """Return a page generated from now on, and its content type."""
        pieces, content_type = self._render(accept)
        task = self._next.get(content_type)
        if task is None:
            task = asyncio.create_task(self._make(content_type, pieces), name="metrics-page")
            self._next[content_type] = task
        # A client that leaves must not cancel the page for the others.
        return await asyncio.shield(task), content_type

    async def _make(self, content_type: str, pieces: Iterator[bytes]) -> bytes:
        async with self._making:
            await self._turn()
            del self._next[content_type]  # later requests need a newer page
            made = []
            for piece in pieces:
                made.append(piece)
                await asyncio.sleep(0)
            self.made += 1
            return b"".join(made)

    async def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            self._credit = min(BURST, self._credit + (now - self._credited) * PAGES_PER_SECOND)
            self._credited = now
            if self._credit >= 1:
                self._credit -= 1
                return
            await asyncio.sleep((1 - self._credit) / PAGES_PER_SECOND)
