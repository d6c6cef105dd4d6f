"""The bundle's archive."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator, Iterator

from service.admin.bundle import zipped


async def pieces(count: int) -> AsyncIterator[bytes]:
    for number in range(count):
        yield b"%d," % number * 1000


def test_the_archive_has_each_file_whole_and_is_sent_as_it_grows() -> None:
    def files() -> Iterator[tuple[str, AsyncIterator[bytes]]]:
        yield "small.json", pieces(1)
        yield "large.json", pieces(5000)

    async def run() -> list[bytes]:
        return [piece async for piece in zipped(files())]

    sent = asyncio.run(run())
    archive = zipfile.ZipFile(io.BytesIO(b"".join(sent)))
    assert archive.testzip() is None
    assert archive.namelist() == ["small.json", "large.json"]
    assert archive.read("small.json") == b"0," * 1000
    assert archive.read("large.json").endswith(b"4999,")


def test_a_client_that_leaves_ends_it() -> None:
    async def run() -> None:
        stream = zipped(iter([("large.json", pieces(100_000))]))
        await anext(stream)
        await stream.aclose()

    asyncio.run(run())
