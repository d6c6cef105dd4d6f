"""Long answers, sent piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from service.admin.problem import ProblemError
from service.errors import SlowReaderError
from service.http.admin import downloads
from service.http.admin.downloads import Downloads, download, paced


def test_other_tasks_run_between_the_pieces() -> None:
    turns: list[str] = []

    async def other() -> None:
        for _ in range(3):
            turns.append("other")
            await asyncio.sleep(0)

    async def run() -> None:
        task = asyncio.create_task(other())
        stream = paced(iter([letter * downloads._SENT_BYTES for letter in (b"a", b"b", b"c")]))
        while piece := await anext(stream, b""):
            turns.append(piece[:1].decode())
        await task

    asyncio.run(run())
    assert turns.index("other") < turns.index("c")


async def test_small_pieces_are_sent_together() -> None:
    made = [piece async for piece in paced(iter([b"[", b"1", b"]"] * 3))]
    assert b"".join(made) == b"[1]" * 3
    assert len(made) < 9


def test_a_file_has_its_name_and_is_not_cached() -> None:
    reply = download(paced(iter([])), "application/zip", file_name="x.zip")
    assert reply.headers["content-disposition"] == 'attachment; filename="x.zip"'
    assert reply.media_type == "application/zip"


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 100


async def test_so_many_at_a_time_and_no_more() -> None:
    exports = Downloads("export", 2)
    first, second = exports.one(endless()), exports.one(endless())
    exports.check()
    await anext(first)
    exports.check()
    await anext(second)
    with pytest.raises(ProblemError, match="at most 2 exports") as caught:
        exports.check()
    assert caught.value.status == 429
    await first.aclose()
    exports.check()
    await second.aclose()


async def test_a_client_that_reads_too_slowly_loses_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(downloads.time, "monotonic", lambda: now)
    exports = Downloads("bundle", 1)
    slow = exports.one(endless())
    await anext(slow)
    for _ in range(2):  # no single write takes too long
        now += 0.9 * downloads._PATIENCE
        if now < downloads._PATIENCE:
            await anext(slow)
    with pytest.raises(SlowReaderError):
        await anext(slow)
    exports.check()


async def test_a_slow_server_is_no_slow_client(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal now
        for _ in range(5):
            now += 2 * downloads._PATIENCE
            yield b"x"

    monkeypatch.setattr(downloads.time, "monotonic", lambda: now)
    assert [piece async for piece in Downloads("bundle", 1).one(pieces())] == [b"x"] * 5
