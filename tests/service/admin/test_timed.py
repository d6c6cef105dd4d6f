"""Values that fall back by themselves."""

from __future__ import annotations

import asyncio
import time

from service.admin.timed import Timed


def test_an_override_falls_back_and_reports_it() -> None:
    applied: list[str] = []
    ended: list[str] = []

    async def run() -> None:
        done = asyncio.Event()

        def on_end(value: str) -> None:
            ended.append(value)
            done.set()

        timed = Timed("info", applied.append, on_end)
        until = timed.override("debug", 0.01)
        assert timed.value == "debug"
        assert 0 < until - time.time() <= 0.01 or until <= time.time()
        await done.wait()
        assert (timed.value, timed.until) == ("info", None)

    asyncio.run(run())
    assert (applied, ended) == (["debug", "info"], ["info"])


def test_a_lasting_change_meanwhile_is_what_it_falls_back_to() -> None:
    applied: list[str] = []

    async def run() -> None:
        done = asyncio.Event()
        timed = Timed("info", applied.append, lambda _: done.set())
        timed.override("debug", 3600)
        timed.set("error")
        assert timed.value == "debug"
        timed.override("warning", 0.01)
        await done.wait()
        assert timed.value == "error"

    asyncio.run(run())
    assert applied == ["debug", "warning", "error"]


def test_without_an_override_a_lasting_change_is_in_force_at_once() -> None:
    applied: list[str] = []
    timed = Timed("info", applied.append)
    timed.set("error")
    timed.close()
    assert (timed.value, timed.lasting, applied) == ("error", "error", ["error"])
