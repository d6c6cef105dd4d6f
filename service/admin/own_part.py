"""What one worker answers the others for the admin API: only about itself. The worker that the
operator is connected to records who asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from observability.admin_api import AuditRows, KvMap, RequestQuery
from observability.catalogue import OTHER_KEY
from service.admin.audit import AuditTrail
from service.admin.hot_settings import HotSettings
from service.admin.part_messages import (
    AuditAsk,
    CancelPart,
    DrainAsk,
    DrainPart,
    EngineName,
    FoundPart,
    KeysPart,
    KvMapPart,
    Nothing,
    OverrideAsk,
    OverviewAsk,
    OverviewPart,
    RequestIds,
    RequestName,
    RowsPart,
    SettingsAsk,
    SettingsPart,
    StoreAsk,
    StorePart,
)
from service.admin.timed import Timed
from service.engine.inspections import NoInspectionError
from service.errors import OperatorCancelError
from service.overview.overviews import FIVE_MINUTES, MINUTE
from service.records.records import Records
from service.serving.services import Services

_Asked = TypeVar("_Asked")
_Told = TypeVar("_Told")


@dataclass(frozen=True, slots=True)
class Question(Generic[_Asked, _Told]):
    """``path``: where another worker answers it."""

    path: str
    asked: type[_Asked]
    told: type[_Told]


OVERVIEW_OF = Question("/peer/overview", OverviewAsk, OverviewPart)
ROWS_OF = Question("/peer/rows", RequestQuery, RowsPart)
FIND_AT = Question("/peer/find", RequestName, FoundPart)
CANCEL_AT = Question("/peer/cancel", RequestName, CancelPart)
KEYS_OF_LIVE = Question("/peer/keys-of", RequestIds, KeysPart)
SETTINGS_OF = Question("/peer/settings", SettingsAsk, SettingsPart)
DRAIN_OF = Question("/peer/drain", DrainAsk, DrainPart)
OVERRIDE_AT = Question("/peer/override", OverrideAsk, Nothing)
KV_MAP_AT = Question("/peer/kv-map", EngineName, KvMapPart)
AUDIT_OF = Question("/peer/audit", AuditAsk, AuditRows)
LOOK_AT_KEYS_AT = Question("/peer/look-at-keys", Nothing, Nothing)
STORE_AT = Question("/peer/store", StoreAsk, StorePart)


def remembered(records: Records, query: RequestQuery) -> bool:
    """True if memory has all requests that can match."""
    oldest = records.oldest_ended
    return query.live or (query.since is not None and oldest is not None and query.since >= oldest)


class OwnPart:
    """``overridable``: values that revert after a time, by name."""

    def __init__(
        self,
        services: Services,
        settings: HotSettings,
        audit: AuditTrail,
        overridable: Mapping[str, Timed[Any]],
    ) -> None:
        self._services = services
        self._settings = settings
        self._audit = audit
        self._overridable = overridable
        self._answers: dict[Question[Any, Any], Callable[[Any], Awaitable[Any]]] = {
            OVERVIEW_OF: self._overview,
            ROWS_OF: self._rows,
            FIND_AT: self._find,
            CANCEL_AT: self._cancel,
            KEYS_OF_LIVE: self._keys_of,
            SETTINGS_OF: self._change,
            DRAIN_OF: self._drain,
            OVERRIDE_AT: self._override,
            KV_MAP_AT: self._kv_map,
            AUDIT_OF: self._audit_rows,
            LOOK_AT_KEYS_AT: self._look_at_keys,
            STORE_AT: self._store,
        }

    @property
    def needs_key(self) -> bool:
        """True if requests of this server have keys."""
        return self._services.settings.needs_key

    async def answer(self, question: Question[_Asked, _Told], asked: _Asked) -> _Told:
        """Raises QueryError for an invalid query."""
        told: _Told = await self._answers[question](asked)
        return told

    def calls(self) -> dict[str, Callable[[bytes], Awaitable[bytes]]]:
        """Return what answers each question of another worker, by path."""
        return {question.path: self._call(question) for question in self._answers}

    def _call(self, question: Question[Any, Any]) -> Callable[[bytes], Awaitable[bytes]]:
        async def call(body: bytes) -> bytes:
            asked = msgspec.msgpack.decode(body, type=question.asked)
            return msgspec.msgpack.encode(await self.answer(question, asked))

        return call

    async def _overview(self, asked: OverviewAsk) -> OverviewPart:
        services = self._services
        records, overviews = services.records, services.overviews
        overview = overviews.now()
        return OverviewPart(
            overview,
            overviews.snapshot,
            overviews.held,
            records.window_values(float(MINUTE)),
            records.window_values(float(FIVE_MINUTES)),
            records.slowest_live() if asked.live else (),
        )

    async def _rows(self, query: RequestQuery) -> RowsPart:
        records = self._services.records
        is_complete = remembered(records, query)
        rows, cursor = await records.rows(query)
        return RowsPart(rows, cursor, is_complete)

    async def _find(self, asked: RequestName) -> FoundPart:
        return FoundPart(self._services.records.find(asked.identity))

    async def _cancel(self, asked: RequestName) -> CancelPart:
        exchange = self._services.exchanges.find(asked.identity)
        if exchange is None:
            return CancelPart()
        record = exchange.record
        error = OperatorCancelError("The request was cancelled by an operator of this server.")
        return CancelPart(
            record.request_id,
            error.outcome,
            f"{record.route} of {record.key or OTHER_KEY}",
            is_complete=not exchange.cancel(error),
        )

    async def _keys_of(self, asked: RequestIds) -> KeysPart:
        records = self._services.records
        return KeysPart({one: records.key_of(one) for one in asked.ids if records.has(one)})

    async def kv_map(self, engine: int) -> KvMap:
        """Ask the engine. Raises NoInspectionError if it has never answered or is not there."""
        return await self._services.overviews.kv_caches.of(engine).map()

    async def _kv_map(self, asked: EngineName) -> KvMapPart:
        try:
            return KvMapPart(await self.kv_map(asked.engine))
        except NoInspectionError:
            return KvMapPart(None)

    async def _change(self, asked: SettingsAsk) -> SettingsPart:
        if asked.values:
            self._settings.take_over(asked.values, asked.actor)
        return SettingsPart(self._settings.revision, self._settings.changed())

    async def _drain(self, asked: DrainAsk) -> DrainPart:
        drain = self._services.drain
        if asked.held:
            drain.hold()
        elif asked.held is not None:
            drain.release()
        return DrainPart(drain.is_held, drain.is_ending, drain.in_flight)

    async def _override(self, asked: OverrideAsk) -> Nothing:
        self._overridable[asked.name].override(asked.value, asked.seconds)
        return Nothing()

    async def _audit_rows(self, asked: AuditAsk) -> AuditRows:
        return await self._audit.rows(asked.limit)

    async def _look_at_keys(self, asked: Nothing) -> Nothing:
        await self._services.key_sources.look()
        return asked

    async def _store(self, asked: StoreAsk) -> StorePart:
        archive = self._services.archive
        return StorePart(archive is None or await archive.write_now(usage=asked.usage))
