"""The maps of the KV cache that were made in the last hour, so that a page can go back to them.

Maps are made when a reader requests one; without readers none is kept. A map is kept as bytes:
thousands of runs as objects would keep the garbage collector busy.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable

import msgspec

from observability.admin_api import KvMap

KV_HISTORY_SECONDS = 3600.0
GRAIN_SECONDS = 5.0
# Of all maps, compressed. An hour of maps with 2,000 runs each takes about as much.
MOST_KV_HISTORY_BYTES = 16 * 1024 * 1024
_LEVEL = 1

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(KvMap)


class KvTimes(msgspec.Struct, frozen=True):
    """When the maps were made that are kept, the oldest first. Epoch seconds."""

    times: tuple[float, ...]


class KvHistory:
    """One map for each ``GRAIN_SECONDS`` in which one was made, of at most ``most_bytes`` together;
    the oldest are dropped first. Times are epoch seconds."""

    def __init__(
        self, *, most_bytes: int = MOST_KV_HISTORY_BYTES, clock: Callable[[], float] = time.time
    ) -> None:
        self._most_bytes = most_bytes
        self._clock = clock
        self._maps: deque[tuple[float, bytes]] = deque()  # the oldest first
        self.bytes = 0

    async def keep(self, found: KvMap) -> None:
        """Keep the map, unless there is one of the same few seconds. Maps that were made later are
        discarded: the clock has been set back since."""
        if self._maps and abs(found.time - self._maps[-1][0]) < GRAIN_SECONDS:
            return
        # Compressing releases the interpreter's lock; encoding takes a hundredth of the time.
        packed = await asyncio.to_thread(zlib.compress, _encoder.encode(found), _LEVEL)
        while self._maps and self._maps[-1][0] >= found.time:
            self.bytes -= len(self._maps.pop()[1])
        self._maps.append((found.time, packed))
        self.bytes += len(packed)
        self._forget()

    def times(self) -> KvTimes:
        """Return when the maps were made."""
        self._forget()
        return KvTimes(tuple(made for made, _ in self._maps))

    async def at(self, moment: float) -> KvMap | None:
        """Return the last map that was made by then; None if none is kept."""
        self._forget()
        number = bisect_right(self._maps, moment, key=lambda one: one[0])
        if not number:
            return None
        packed = self._maps[number - 1][1]
        return _decoder.decode(await asyncio.to_thread(zlib.decompress, packed))

    def _forget(self) -> None:
        since = self._clock() - KV_HISTORY_SECONDS
        while self._maps and (self._maps[0][0] < since or self.bytes > self._most_bytes):
            self.bytes -= len(self._maps.popleft()[1])
