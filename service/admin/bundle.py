"""The incident bundle: one zip file of JSON, made while it is sent."""

from __future__ import annotations

import asyncio
import time
import zipfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterable

# Sent at a time, at least.
_SENT_BYTES = 64 * 1024


class _Sink:
    """A file that can only be written, and whose content is taken from it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size = 0

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        pieces, self._pieces, self.size = self._pieces, [], 0
        return b"".join(pieces)


async def zipped(
    files: Iterable[tuple[str, AsyncIterator[bytes]]],
) -> AsyncGenerator[bytes, None]:
    """Yield a zip archive of files, each given by its name and its content in pieces.

    Pieces are made on the event loop, one at a time, and compressed in a thread.
    """
    sink = _Sink()
    now = time.gmtime()[:6]
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:  # type: ignore[call-overload]
        for name, pieces in files:
            member = zipfile.ZipInfo(name, now)
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w", force_zip64=True) as target:
                async for piece in pieces:
                    await asyncio.to_thread(target.write, piece)
                    if sink.size >= _SENT_BYTES:
                        yield sink.take()
    yield sink.take()
