"""The live feed: one producer makes each message once, and all readers get the same bytes.

Nothing is made while there are no readers. A reader that does not keep up is cut off; the others
do not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
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
    """``queue``: messages to send; None: it has been cut off."""

    def __init__(self, *, wants_kv: bool) -> None:
        self.wants_kv = wants_kv
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_BEHIND + 1)

    def offer(self, message: bytes) -> bool:
        """Return False if the reader is too slow, in which case it is cut off."""
        if self.queue.qsize() >= _MOST_BEHIND:
            with contextlib.suppress(asyncio.QueueFull):
                self.queue.put_nowait(None)
            return False
        self.queue.put_nowait(message)
        return True


class Feed:
    """``frame`` makes the message of a second; ``kv_map`` asks the engine for its map, None if it
    has none. Call all methods on one event loop."""

    def __init__(
        self, frame: Callable[[], Frame], kv_map: Callable[[], Awaitable[KvMap | None]]
    ) -> None:
        self._frame = frame
        self._kv_map = kv_map
        self._readers: set[_Reader] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._kv_task: asyncio.Task[None] | None = None
        self._last = b""
        self._last_logged = 0.0
        self.made = 0

    def __len__(self) -> int:
        """The number of readers."""
        return len(self._readers)

    def check(self) -> None:
        """Raise ProblemError when there is no place for another reader."""
        if len(self._readers) >= MOST_FEED_READERS:
            raise ProblemError(
                429,
                "readers",
                f"The feed already has {MOST_FEED_READERS} readers, the maximum. A dashboard reads "
                "it once for all of its viewers.",
                headers={"retry-after": "5"},
            )

    async def follow(self, *, kv: bool) -> AsyncGenerator[bytes, None]:
        """Yield each message as a server-sent event. Call ``check`` first."""
        reader = _Reader(wants_kv=kv)
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
        self._readers.add(reader)
        if len(self._readers) == 1:
            self._tasks = [asyncio.create_task(self._produce(), name="admin-feed")]
        if reader.wants_kv and self._kv_task is None:
            self._kv_task = asyncio.create_task(self._produce_kv(), name="admin-feed-kv")

    def _leave(self, reader: _Reader) -> None:
        self._readers.discard(reader)
        if self._kv_task is not None and not any(one.wants_kv for one in self._readers):
            self._kv_task.cancel()
            self._kv_task = None
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
                self._last = event_of(self._frame())
                self.made += 1
                self._send(self._last)
            except Exception:
                self._complain("failed to build a feed message")
            due = max(due + FRAME_SECONDS, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _produce_kv(self) -> None:
        while True:
            try:
                found = await self._kv_map()
                if found is not None:
                    self._send(await _kv_event(found), only_kv=True)
            except Exception:
                self._complain("failed to build the KV cache map")
            await asyncio.sleep(KV_SECONDS)

    def _send(self, message: bytes, *, only_kv: bool = False) -> None:
        for reader in tuple(self._readers):
            if (reader.wants_kv or not only_kv) and not reader.offer(message):
                _log.info("disconnected a feed reader that did not keep up")
                self._readers.discard(reader)

    def _complain(self, what: str) -> None:
        now = time.monotonic()
        if now - self._last_logged >= _LOG_SECONDS:
            self._last_logged = now
            _log.exception(what)

    def close(self) -> None:
        """End all readers."""
        if self._kv_task is not None:
            self._kv_task.cancel()
            self._kv_task = None
        self._stop()
        for reader in self._readers:
            with contextlib.suppress(asyncio.QueueFull):
                reader.queue.put_nowait(None)


async def _kv_event(found: KvMap) -> bytes:
    pieces = []
    for piece in kv_pieces(found):
        pieces.append(piece)
        await my_turn()
    return b'data: {"kv":%b}\n\n' % b"".join(pieces)


def event_of(frame: Frame) -> bytes:
    return b"data: %b\n\n" % _encoder.encode(frame)
