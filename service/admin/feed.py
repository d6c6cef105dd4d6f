"""The live feed: one producer makes each message once, and all readers get the same bytes.

Nothing is made while there are no readers. A reader that does not keep up is cut off; the others
do not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from observability.admin_api import Frame, KvMap
from observability.logging import get_logger
from service.admin.pieces import kv_pieces
from service.admin.problem import ProblemError
from service.turns import my_turn

MOST_FEED_READERS = 16
FRAME_SECONDS = 1.0
KV_SECONDS = 0.5
_MOST_BEHIND = 8  # messages
_LOG_SECONDS = 60.0

_log = get_logger()
_encoder = msgspec.json.Encoder()


class _Reader:
    """``alias``: of its admin key. ``kv``: the engine whose KV maps it gets; None: none's.
    ``queue``: messages to send; None: it has been cut off."""

    def __init__(self, alias: str, kv: int | None) -> None:
        self.alias = alias
        self.kv = kv
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_BEHIND + 1)

    def offer(self, message: bytes) -> bool:
        """Return False if the reader is too slow, in which case it is cut off."""
        if self.queue.qsize() >= _MOST_BEHIND:
            self.cut_off()
            return False
        self.queue.put_nowait(message)
        return True

    def cut_off(self) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            self.queue.put_nowait(None)


class Feed:
    """``frame`` makes the message of a second; ``kv_map`` asks the engine with an index for its
    map, None if it has none. Call all methods on one event loop."""

    def __init__(
        self,
        frame: Callable[[], Awaitable[Frame]],
        kv_map: Callable[[int], Awaitable[KvMap | None]],
    ) -> None:
        self._frame = frame
        self._kv_map = kv_map
        self._readers: dict[_Reader, None] = {}  # the oldest first
        self._tasks: list[asyncio.Task[None]] = []
        self._kv_tasks: dict[int, asyncio.Task[None]] = {}  # by engine
        self._last = b""
        self._last_logged = 0.0
        self.made = 0

    def __len__(self) -> int:
        """The number of readers."""
        return len(self._readers)

    def make_room(self, alias: str) -> None:
        """For another reader with this key. When the feed is full, the oldest reader of the key
        with the most of them is cut off, unless that would only turn the tables. Raises
        ProblemError if there is no room."""
        if len(self._readers) < MOST_FEED_READERS:
            return
        readers = Counter(reader.alias for reader in self._readers)
        greediest, most = readers.most_common(1)[0]
        if most <= readers[alias] + 1:
            raise ProblemError(
                429,
                "readers",
                f"The feed of this API worker already has {MOST_FEED_READERS} readers, the "
                "maximum. A dashboard reads it once for all of its viewers.",
                headers={"retry-after": "5"},
            )
        oldest = next(reader for reader in self._readers if reader.alias == greediest)
        _log.info("disconnected a feed reader to make room for another key's", alias=greediest)
        oldest.cut_off()
        del self._readers[oldest]

    async def follow(self, alias: str, *, kv: int | None) -> AsyncGenerator[bytes, None]:
        """Yield each message as a server-sent event. Call ``make_room`` first; ends at once if
        others have taken the place since. ``alias``: of the reader's admin key. ``kv``: the engine
        whose KV maps are wanted, too."""
        if len(self._readers) >= MOST_FEED_READERS:
            return
        reader = _Reader(alias, kv)
        self._enter(reader)
        try:
            while True:
                message = await reader.queue.get()
                if message is None:
                    return
                yield message
        finally:
            self._leave(reader)

    def _enter(self, reader: _Reader) -> None:
        if self._readers and self._last:
            reader.offer(self._last)
        self._readers[reader] = None
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._produce(), name="admin-feed")]
        if reader.kv is not None and reader.kv not in self._kv_tasks:
            task = asyncio.create_task(self._produce_kv(reader.kv), name="admin-feed-kv")
            self._kv_tasks[reader.kv] = task

    def _leave(self, reader: _Reader) -> None:
        self._readers.pop(reader, None)
        wanted = {one.kv for one in self._readers}
        for engine in self._kv_tasks.keys() - wanted:
            self._kv_tasks.pop(engine).cancel()
        if not self._readers:
            self._stop()

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks, self._last = [], b""

    async def _produce(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            try:
                self._last = event_of(await self._frame())
                self.made += 1
                self._send(self._last)
            except Exception:
                self._complain("failed to build a feed message")
            due = max(due + FRAME_SECONDS, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _produce_kv(self, engine: int) -> None:
        while True:
            try:
                found = await self._kv_map(engine)
                if found is not None:
                    self._send(await _kv_event(found), kv=engine)
            except Exception:
                self._complain("failed to build the KV cache map")
            await asyncio.sleep(KV_SECONDS)

    def _send(self, message: bytes, *, kv: int | None = None) -> None:
        """Send to all, or to those who want the maps of an engine."""
        for reader in tuple(self._readers):
            if kv in (None, reader.kv) and not reader.offer(message):
                _log.info("disconnected a feed reader that did not keep up")
                self._leave(reader)

    def _complain(self, what: str) -> None:
        now = time.monotonic()
        if now - self._last_logged >= _LOG_SECONDS:
            self._last_logged = now
            _log.exception(what)

    def close(self) -> None:
        """End all readers."""
        for task in self._kv_tasks.values():
            task.cancel()
        self._kv_tasks = {}
        self._stop()
        for reader in self._readers:
            reader.cut_off()


async def _kv_event(found: KvMap) -> bytes:
    pieces = []
    for piece in kv_pieces(found):
        pieces.append(piece)
        await my_turn()
    return b'data: {"kv":%b}\n\n' % b"".join(pieces)


def event_of(frame: Frame) -> bytes:
    return b"data: %b\n\n" % _encoder.encode(frame)
