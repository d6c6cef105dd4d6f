"""Long answers, sent piece by piece."""

from __future__ import annotations

import asyncio

from service.http.admin.downloads import download, paced


def test_other_tasks_run_between_the_pieces() -> None:
    turns: list[str] = []

    async def other() -> None:
        for _ in range(3):
            turns.append("other")
            await asyncio.sleep(0)

    async def run() -> None:
        task = asyncio.create_task(other())
        stream = paced(iter([b"a", b"b", b"c"]))
        while piece := await anext(stream, b""):
            turns.append(piece.decode())
        await task

    asyncio.run(run())
    assert turns.index("other") < turns.index("c")
    assert turns[0] == "a"


def test_a_file_has_its_name_and_is_not_cached() -> None:
    reply = download(paced(iter([])), "application/zip", file_name="x.zip")
    assert reply.headers["content-disposition"] == 'attachment; filename="x.zip"'
    assert reply.media_type == "application/zip"
