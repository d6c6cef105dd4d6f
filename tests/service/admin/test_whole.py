"""All workers asked, and those named that do not answer."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from observability.admin_api import BlockRun, KvMap, Owner
from service.admin.own_part import AUDIT_OF, DRAIN_OF, SETTINGS_OF
from service.admin.part_messages import AuditAsk, DrainAsk, SettingsAsk
from service.admin.whole import MISSING_HEADER, Whole
from service.http.peer_calls import PeerCalls
from service.http.peer_server import PeerApp, PeerServer
from service.ids import Ids
from service.peers.peers import Peers
from tests.service.admin.test_own_part import Part


async def _unused(scope: object, receive: object, send: object) -> None:
    raise AssertionError


async def hung(
    whole: Whole, servers: list[PeerServer], number: int, left: asyncio.Event | None = None
) -> asyncio.Server:
    """Replace a worker's server by one that never answers. ``left``: set when who asked has
    left."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        if left is not None:
            left.set()
        writer.close()

    await servers[number].stop(5)
    return await asyncio.start_unix_server(serve, str(whole.peers.socket_of(number)))


@asynccontextmanager
async def workers(
    count: int, **settings: Any
) -> AsyncIterator[tuple[list[Part], list[Whole], list[PeerServer]]]:
    """Workers of one server, in this process."""
    with tempfile.TemporaryDirectory(prefix="q-") as folder:
        parts = [Part(**settings) for _ in range(count)]
        peers = [Peers(Ids(number, count), Path(folder)) for number in range(count)]
        servers = [
            PeerServer(
                PeerApp(_unused, None, PeerCalls(part.services, part.own.calls())),
                one.socket_of(number),
            )
            for number, (part, one) in enumerate(zip(parts, peers, strict=True))
        ]
        for server in servers:
            await server.start()
        wholes = [Whole(one, part.own, seconds=0.5) for one, part in zip(peers, parts, strict=True)]
        try:
            yield parts, wholes, servers
        finally:
            for server in servers:
                await server.stop(5)


class Written:
    """In place of an archive."""

    def __init__(self) -> None:
        self.calls: list[bool] = []
        self.is_up = True

    async def write_now(self, *, usage: bool) -> bool:
        self.calls.append(usage)
        return self.is_up


async def test_every_worker_writes_to_the_store_before_it_is_read() -> None:
    async with workers(3) as (parts, wholes, servers):
        archives = [Written() for _ in parts]
        for part, archive in zip(parts, archives, strict=True):
            object.__setattr__(part.services, "archive", archive)
        assert (await wholes[1].store_now(usage=True)).headers == {}
        await wholes[0].audit_rows(10, is_shared=True)
        assert [one.calls for one in archives] == [[True, False]] * 3
        archives[0].is_up = False  # as after a restart, until it has opened the database
        assert (await wholes[1].store_now()).headers == {MISSING_HEADER: "0"}
        archives[0].is_up = True
        await servers[2].stop(5)
        assert (await wholes[1].store_now()).headers == {MISSING_HEADER: "2"}


async def test_every_worker_is_asked_and_one_that_is_away_is_named() -> None:
    async with workers(3) as (parts, wholes, servers):
        told = await wholes[1].gather(DRAIN_OF, DrainAsk(held=True))
        assert [part.is_held for part in told.parts] == [True] * 3
        assert all(part.services.drain.draining for part in parts)
        assert told.headers == {}
        await servers[2].stop(5)
        told = await wholes[1].gather(DRAIN_OF, DrainAsk(held=False))
        assert len(told.parts) == 2
        assert told.headers == {MISSING_HEADER: "2"}


async def test_a_worker_that_is_silent_is_not_waited_for() -> None:
    async with workers(2) as (_, wholes, servers):
        silent = asyncio.Event()
        server = await hung(wholes[0], servers, 1, silent)
        with capture_logs() as logs:
            told = await asyncio.wait_for(wholes[0].gather(DRAIN_OF, DrainAsk()), 5)
        assert told.missing == (1,)
        assert [line["error"] for line in logs] == ["no answer within 0.5 s"]
        await asyncio.wait_for(silent.wait(), 5)  # and its connection is closed
        server.close()


async def test_only_the_worker_that_made_an_id_is_asked_for_it() -> None:
    async with workers(3) as (parts, wholes, _):
        asked = [part.services.drain.is_held for part in parts]
        assert asked == [False] * 3
        theirs = wholes[2].peers.ids.new("req_")
        for whole in wholes:
            told = await whole.ask(theirs, DRAIN_OF, DrainAsk(held=True))
            assert len(told.parts) == 1
        assert [part.services.drain.is_held for part in parts] == [False, False, True]
        assert len((await wholes[0].ask("a trace", DRAIN_OF, DrainAsk())).parts) == 3


async def test_audit_rows_are_in_one_order() -> None:
    async with workers(2) as (parts, wholes, _):
        for number in range(6):
            parts[number % 2].audit.add("ann", "", f"{number}")
        told = await wholes[0].audit_rows(4, is_shared=False)
        assert [row.action for row in told.parts[0].rows] == ["5", "4", "3", "2"]
        shared = await wholes[0].audit_rows(4, is_shared=True)
        assert [row.action for row in shared.parts[0].rows] == ["4", "2", "0"]
        assert len((await wholes[0].gather(AUDIT_OF, AuditAsk(1))).parts) == 2


async def test_a_worker_that_starts_takes_over_what_was_changed() -> None:
    async with workers(3) as (parts, wholes, servers):
        await servers[0].stop(5)  # cannot be asked
        await parts[1].own.answer(SETTINGS_OF, SettingsAsk({"most": 7}, "ann"))
        await parts[1].own.answer(DRAIN_OF, DrainAsk(held=True))
        await wholes[2].adopt()
        assert parts[2].value == 7
        assert parts[2].settings.changed() == {"most": (7, "ann")}
        assert parts[2].services.drain.is_held
        assert msgspec.json.encode(parts[0].value) == b"3"


async def test_a_worker_that_starts_waits_once_for_all_that_hang() -> None:
    async with workers(6) as (parts, wholes, servers):
        hanging = [await hung(wholes[5], servers, number) for number in range(4)]
        await parts[4].own.answer(SETTINGS_OF, SettingsAsk({"most": 7}, "ann"))
        started = time.monotonic()
        await wholes[5].adopt()
        # Each question waits for 0.5 s, so one after another would take 2 s.
        assert time.monotonic() - started < 1.9
        assert parts[5].value == 7
        for server in hanging:
            server.close()


async def test_a_worker_that_starts_waits_for_none_after_the_first_that_answers() -> None:
    async with workers(3) as (parts, wholes, servers):
        hanging = await hung(wholes[2], servers, 1)
        patient = Whole(wholes[2].peers, parts[2].own, seconds=60)
        await parts[0].own.answer(DRAIN_OF, DrainAsk(held=True))
        await asyncio.wait_for(patient.adopt(), 10)
        assert parts[2].services.drain.is_held
        hanging.close()


@pytest.mark.parametrize("has_keys", [False, True])
async def test_the_keys_of_a_map_are_asked_for_only_if_there_are_keys(has_keys: bool) -> None:
    keys = {"api_key": ("ann=sk-ann-1234567",)} if has_keys else {}
    run, owner = BlockRun(0, 3, True), Owner("req_1", None, 3, 40)
    found = KvMap(1.0, 8, 16, 3, 0, 5, (run,), (owner,))
    async with workers(2, **keys) as (_, wholes, servers):
        await servers[1].stop(5)  # to ask it is logged as a failure
        with capture_logs() as lines:
            assert await wholes[0].with_keys(found) == found
    assert [line["worker"] for line in lines] == [1] * has_keys
