"""Long answers, sent piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator

from service.http.event_stream import EventStream

# Seconds that a client may block one write.
_PATIENCE = 30.0


async def paced(pieces: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the pieces; other tasks run in between."""
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)


def download(
    pieces: AsyncGenerator[bytes, None], media_type: str, *, file_name: str = ""
) -> EventStream:
    """Return an answer that is sent as its pieces are made. ``file_name``: as which a browser
    saves it."""
    headers = {"cache-control": "no-store"}
    if file_name:
        headers["content-disposition"] = f'attachment; filename="{file_name}"'
    return EventStream(
        pieces,
        headers,
        patience=_PATIENCE,
        keep_alive=0.0,
        cut=lambda _: None,
        media_type=media_type,
    )
