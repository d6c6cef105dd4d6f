"""Answers for the whole server, on whichever worker an operator's connection lands: each worker
answers with its part, within a time limit, and the parts are joined. A worker that does not answer
is named in the reply.

No worker keeps a copy of what others know, so nothing is sent between them until an operator looks.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from observability.admin_api import (
    AuditRow,
    AuditRows,
    KeptRequest,
    KvMap,
    Overview,
    RequestQuery,
)
from observability.logging import get_logger
from service.admin.joining import joined_overview, joined_rows
from service.admin.own_part import (
    AUDIT_OF,
    DRAIN_OF,
    FIND_AT,
    KEYS_OF_LIVE,
    KV_MAP_AT,
    OVERVIEW_OF,
    ROWS_OF,
    SETTINGS_OF,
    STORE_AT,
    OwnPart,
    Question,
)
from service.admin.part_messages import (
    AuditAsk,
    DrainAsk,
    DrainPart,
    EngineName,
    OverviewAsk,
    RequestIds,
    RequestName,
    RowsPart,
    SettingsAsk,
    SettingsPart,
    StoreAsk,
    StorePart,
)
from service.errors import NotFoundError
from service.peers.asking import PeerLostError, PeerUnreachableError
from service.peers.peers import Peers
from service.peers.requests import ask_worker
from service.records.records import SLOWEST_IN_FEED

# For all workers to answer. One whose event loop is blocked for longer is missing from the reply.
GATHER_SECONDS = 2.0
_MOST_AT_ONCE = 32  # questions in flight
MISSING_HEADER = "quire-missing-workers"

_Asked = TypeVar("_Asked")
_Told = TypeVar("_Told")

_log = get_logger()


@dataclass(frozen=True, slots=True)
class Gathered(Generic[_Told]):
    """``parts``: this worker's first. ``missing``: the workers that run but did not answer."""

    parts: list[_Told]
    missing: tuple[int, ...] = ()

    @property
    def headers(self) -> dict[str, str]:
        """Of the reply."""
        if not self.missing:
            return {}
        return {MISSING_HEADER: ", ".join(map(str, self.missing))}


class Whole:
    """``own``: what this worker answers for itself."""

    def __init__(self, peers: Peers, own: OwnPart, *, seconds: float = GATHER_SECONDS) -> None:
        self.own = own
        self.peers = peers
        self._seconds = seconds
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)

    async def gather(self, question: Question[_Asked, _Told], asked: _Asked) -> Gathered[_Told]:
        """Put a question to all workers that run. Raises what this worker's own answer does."""
        own = await self.own.answer(question, asked)
        found = await self._ask_others(question, asked)
        parts = [own, *itertools.chain.from_iterable(found.values())]
        return Gathered(parts, tuple(other for other, part in found.items() if not part))

    async def _ask_others(
        self, question: Question[_Asked, _Told], asked: _Asked
    ) -> dict[int, list[_Told]]:
        """Return the part of each other worker; none from one that does not answer in time."""
        others = self.peers.others()
        found = await asyncio.gather(*(self._ask(other, question, asked) for other in others))
        return dict(zip(others, found, strict=True))

    async def ask(
        self, identity: str, question: Question[_Asked, _Told], asked: _Asked
    ) -> Gathered[_Told]:
        """Put a question to the worker that made an id, or to all if that is not known."""
        if self.peers.ids.made_here(identity):
            return Gathered([await self.own.answer(question, asked)])
        owner = self.peers.owner_of(identity)
        if owner is None:
            return await self.gather(question, asked)
        part = await self._ask(owner, question, asked)
        return Gathered(part, () if part else (owner,))

    async def _ask(
        self,
        worker: int,
        question: Question[_Asked, _Told],
        asked: _Asked,
        *,
        is_expected: bool = True,
    ) -> list[_Told]:
        """Return its part; none for a worker that does not answer in time, which is logged if it
        was expected to."""
        body = msgspec.msgpack.encode(asked)
        try:
            async with asyncio.timeout(self._seconds), self._places:
                told = await ask_worker(
                    self.peers, worker, question.path, body, seconds=self._seconds
                )
        except (PeerUnreachableError, PeerLostError, NotFoundError, TimeoutError) as error:
            if is_expected:
                _log.warning(
                    "a worker does not answer",
                    worker=worker,
                    question=question.path,
                    error=str(error) or f"no answer within {self._seconds:g} s",
                )
            return []
        return [msgspec.msgpack.decode(told, type=question.told)]

    # --- joined answers -------------------------------------------------------------------------

    async def overview(self, *, live: bool = False) -> tuple[Overview, tuple[KeptRequest, ...]]:
        """Return the state at this moment and, if wanted, the slowest live requests."""
        found = await self.gather(OVERVIEW_OF, OverviewAsk(live))
        if len(found.parts) == 1 and not found.missing:
            return found.parts[0].overview, found.parts[0].live
        slowest = heapq.nsmallest(
            SLOWEST_IN_FEED,
            (request for part in found.parts for request in part.live),
            key=lambda request: request.received,
        )
        return joined_overview(found.parts, found.missing), tuple(slowest)

    async def rows(self, query: RequestQuery) -> Gathered[RowsPart]:
        """Return one part, the page of all workers' requests in memory. Raises QueryError."""
        found = await self.gather(ROWS_OF, query)
        return Gathered([joined_rows(query, found.parts)], found.missing)

    async def find(self, identity: str) -> Gathered[KeptRequest]:
        """Return a request in memory, live or ended: one part or none."""
        found = await self.ask(identity, FIND_AT, RequestName(identity))
        requests = [part.request for part in found.parts if part.request is not None]
        return Gathered(requests[-1:], found.missing)

    async def kv_map(self, engine: int) -> KvMap:
        """Return the map of an engine's KV cache. Only the worker that leads asks engines, and
        keeps the maps. Raises NoInspectionError if the engine has never answered."""
        found: KvMap | None = None
        if not self.peers.leads:
            for part in await self._ask(self.peers.lead, KV_MAP_AT, EngineName(engine)):
                found = part.map
        if found is None:
            found = await self.own.kv_map(engine)
        return await self.with_keys(found)

    async def with_keys(self, found: KvMap) -> KvMap:
        """Return the map with the keys of other workers' requests, too."""
        if not (self.peers and self.own.needs_key):
            return found
        unknown = tuple(one.request_id for one in found.owners if one.key is None)
        if not unknown:
            return found
        told = await self.gather(KEYS_OF_LIVE, RequestIds(unknown))
        keys = {one: key for part in told.parts for one, key in part.keys.items()}
        owners = (
            msgspec.structs.replace(one, key=keys.get(one.request_id, one.key))
            for one in found.owners
        )
        return msgspec.structs.replace(found, owners=tuple(owners))

    async def audit_rows(self, limit: int, *, is_shared: bool) -> Gathered[AuditRows]:
        """Return the newest rows, the newest first, as the only part. ``is_shared``: a store has
        those of all workers."""
        if is_shared:
            stored = await self.store_now()
            own = await self.own.answer(AUDIT_OF, AuditAsk(limit))
            return Gathered([own], stored.missing)
        found = await self.gather(AUDIT_OF, AuditAsk(limit))
        newest = _newest((part.rows for part in found.parts), limit)
        return Gathered([AuditRows(tuple(newest))], found.missing)

    async def store_now(self, *, usage: bool = False) -> Gathered[StorePart]:
        """Have all workers write what they have for the store, before it is read. Other workers
        that cannot write all of it now are missing; if this one cannot, reading fails, too."""
        asked = StoreAsk(usage)
        own, found = await asyncio.gather(
            self.own.answer(STORE_AT, asked), self._ask_others(STORE_AT, asked)
        )
        missing = (
            other for other, parts in found.items() if not any(part.is_written for part in parts)
        )
        return Gathered([own], tuple(missing))

    async def adopt(self) -> None:
        """Take over what operators have changed, which this worker, just started, does not know:
        from the first of the others that answers."""
        asked = [asyncio.ensure_future(self._changed_at(one)) for one in self.peers.others()]
        try:
            for each in asked:
                told = await each
                if told is not None:
                    await self._take_over(*told)
                    return
        finally:
            for each in asked:
                each.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _take_over(self, settings: SettingsPart, drain: DrainPart) -> None:
        for name, (value, actor) in settings.changed.items():
            await self.own.answer(SETTINGS_OF, SettingsAsk({name: value}, actor))
        if drain.is_held:
            await self.own.answer(DRAIN_OF, DrainAsk(held=True))

    async def _changed_at(self, other: int) -> tuple[SettingsPart, DrainPart] | None:
        """Return what operators have changed at a worker; None if it does not answer in time."""
        settings, drain = await asyncio.gather(
            self._ask(other, SETTINGS_OF, SettingsAsk(), is_expected=False),
            self._ask(other, DRAIN_OF, DrainAsk(), is_expected=False),
        )
        return (settings[0], drain[0]) if settings and drain else None


def _newest(parts: Iterable[Sequence[AuditRow]], limit: int) -> list[AuditRow]:
    merged = heapq.merge(*parts, key=lambda row: -row.time)
    return [row for row, _ in zip(merged, range(limit), strict=False)]
