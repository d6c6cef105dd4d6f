"""Long answers, sent piece by piece."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping

from service.admin.problem import ProblemError
from service.errors import SlowReaderError
from service.http.event_stream import EventStream
from service.serving.limits import longest_seconds
from service.turns import Pace, my_turn

# Seconds that a client may block one write.
_PATIENCE = 30.0
_SENT_BYTES = 64 * 1024  # at a time, at most about


async def paced(pieces: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the pieces, made when it is this answer's turn. Small ones are put together."""
    await my_turn()
    pace, made = Pace(), b""
    for piece in pieces:
        made += piece
        if pace.is_over or len(made) >= _SENT_BYTES:
            yield made
            made = b""
            await pace.next()
    if made:
        yield made


class Downloads:
    """Long downloads of a kind, at most ``most`` at a time: each needs a part of the event loop and
    of the database for as long as it lasts. ``name``: of one."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._places = asyncio.Semaphore(most)

    def check(self) -> None:
        """Raise ProblemError when there is no place for another one."""
        if self._places.locked():
            raise ProblemError(
                429,
                self._name,
                f"The server makes at most {self._most} {self._name}s at a time; retry when one "
                "has ended."
                if self._most > 1
                else f"Another {self._name} is being made; retry when it has ended.",
                headers={"retry-after": "5"},
            )

    async def one(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield the pieces in a place. Call ``check`` first. Raises SlowReaderError for a client
        that reads just fast enough for no write to take too long, but would keep its place."""
        async with self._places:
            size, waited = 0, 0.0
            async for piece in pieces:
                begun = time.monotonic()
                yield piece
                size += len(piece)
                waited += time.monotonic() - begun
                if waited > longest_seconds(size, _PATIENCE):
                    raise SlowReaderError("The client reads its download too slowly.")


def download(
    pieces: AsyncGenerator[bytes, None],
    media_type: str,
    *,
    file_name: str = "",
    headers: Mapping[str, str] | None = None,
) -> EventStream:
    """Return an answer that is sent as its pieces are made. ``file_name``: as which a browser
    saves it."""
    all_headers = {"cache-control": "no-store", **(headers or {})}
    if file_name:
        all_headers["content-disposition"] = f'attachment; filename="{file_name}"'
    return EventStream(
        pieces,
        all_headers,
        patience=_PATIENCE,
        keep_alive=0.0,
        cut=lambda _: None,
        media_type=media_type,
    )
