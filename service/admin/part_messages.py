"""What the workers of a server ask each other for the admin API: each answers for itself."""

from __future__ import annotations

from typing import Any

import msgspec

from observability.admin_api import KeptRequest, KvMap, Overview
from service.overview.snapshot import Snapshot
from service.records.recent import WindowValues
from service.records.row import Row


class OverviewAsk(msgspec.Struct, frozen=True):
    """``live``: with the slowest live requests."""

    live: bool = False


class OverviewPart(msgspec.Struct, frozen=True):
    """``snapshot``: what the overview's verdict was made of. ``held``: tokens in the KV cache by
    the alias of the key, "" for those of no key."""

    overview: Overview
    snapshot: Snapshot
    held: dict[str, int]
    minute: WindowValues
    five_minutes: WindowValues
    live: tuple[KeptRequest, ...] = ()


class RowsPart(msgspec.Struct, frozen=True):
    """A page in memory. ``is_complete``: it has all requests that can match."""

    rows: list[Row]
    cursor: str | None
    is_complete: bool


class RequestName(msgspec.Struct, frozen=True):
    """``identity``: a request's id or its trace's."""

    identity: str


class FoundPart(msgspec.Struct, frozen=True):
    request: KeptRequest | None


class CancelPart(msgspec.Struct, frozen=True):
    """``request_id``: empty if no such request is live here. ``whose``: its route and key, for the
    audit trail."""

    request_id: str = ""
    outcome: str = ""
    whose: str = ""
    is_complete: bool = False  # its answer, so that it could not be cancelled


class RequestIds(msgspec.Struct, frozen=True):
    ids: tuple[str, ...]


class StoreAsk(msgspec.Struct, frozen=True):
    """``usage``: also the usage, which takes longer."""

    usage: bool = False


class StorePart(msgspec.Struct, frozen=True):
    """``is_written``: the store has everything from this worker."""

    is_written: bool


class EngineName(msgspec.Struct, frozen=True):
    """The index of an engine."""

    engine: int


class KvMapPart(msgspec.Struct, frozen=True):
    """``map``: None if the engine has never answered."""

    map: KvMap | None


class KeysPart(msgspec.Struct, frozen=True):
    """The aliases of the keys of requests in memory, by request id."""

    keys: dict[str, str | None]


class SettingsAsk(msgspec.Struct, frozen=True):
    """``values``: to be set, already checked; none: only look."""

    values: dict[str, Any] = {}
    actor: str = ""


class SettingsPart(msgspec.Struct, frozen=True):
    """``changed``: values that an operator has set, by name, with who did."""

    revision: str
    changed: dict[str, tuple[Any, str]] = {}


class DrainAsk(msgspec.Struct, frozen=True):
    """``held``: whether to accept no requests; None: only look."""

    held: bool | None = None


class DrainPart(msgspec.Struct, frozen=True):
    """``is_ending``: the worker is shutting down, which cannot be undone."""

    is_held: bool
    is_ending: bool
    in_flight: int


class OverrideAsk(msgspec.Struct, frozen=True):
    """``name``: "log_level" or "tracing"."""

    name: str
    value: Any
    seconds: float


class AuditAsk(msgspec.Struct, frozen=True):
    limit: int


class Nothing(msgspec.Struct, frozen=True):
    pass
