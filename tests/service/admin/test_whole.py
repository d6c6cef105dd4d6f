"""All workers asked, and those named that do not answer."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

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


@asynccontextmanager
async def workers(count: int) -> AsyncIterator[tuple[list[Part], list[Whole], list[PeerServer]]]:
    """Workers of one server, in this process."""
    with tempfile.TemporaryDirectory(prefix="q-") as folder:
        parts = [Part() for _ in range(count)]
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
        await servers[1].stop(5)
        silent = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            silent.set()
            writer.close()

        server = await asyncio.start_unix_server(serve, str(wholes[0].peers.socket_of(1)))
        told = await asyncio.wait_for(wholes[0].gather(DRAIN_OF, DrainAsk()), 5)
        assert told.missing == (1,)
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
        assert [row.action for row in told.parts] == ["5", "4", "3", "2"]
        shared = await wholes[0].audit_rows(4, is_shared=True)
        assert [row.action for row in shared.parts] == ["4", "2", "0"]
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
