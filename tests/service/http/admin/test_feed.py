"""The feed's route."""

from __future__ import annotations

import asyncio
from pathlib import Path

from service.admin.gate import LOOPBACK
from tests.service.http.admin.asking import Reply, admin_app, ask


def test_the_seventeenth_reader_is_sent_away(own_template: Path, tmp_path: Path) -> None:
    app = admin_app(own_template, tmp_path, store_url="none")

    async def run() -> Reply:
        streams = [app.desk.feed.follow(LOOPBACK, kv=None) for _ in range(16)]
        for stream in streams:
            await anext(stream)
        reply = await ask(app, "GET", "/admin/v1/feed")
        for stream in streams:
            await stream.aclose()
        return reply

    reply = asyncio.run(run())
    assert (reply.status, reply.headers["retry-after"]) == (429, "5")


def test_a_reader_that_leaves_frees_its_place(own_template: Path, tmp_path: Path) -> None:
    app = admin_app(own_template, tmp_path, store_url="none")

    async def run() -> int:
        reply = await ask(app, "GET", "/admin/v1/feed?kv=1")
        assert reply.headers["content-type"].startswith("text/event-stream")
        return len(app.desk.feed)

    assert asyncio.run(run()) == 0


def test_a_wrong_parameter(own_template: Path, tmp_path: Path) -> None:
    app = admin_app(own_template, tmp_path, store_url="none")
    assert asyncio.run(ask(app, "GET", "/admin/v1/feed?kv=yes")).status == 422
    reply = asyncio.run(ask(app, "GET", "/admin/v1/feed?kv=1&engine=1"))
    assert (reply.status, "engine" in reply.json()["detail"]) == (422, True)
