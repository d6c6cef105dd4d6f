"""What the admin API answers about API keys. Times are seconds since the epoch. A key itself is in
the answer that makes it, and nowhere else."""

from __future__ import annotations

import msgspec

# What a key may have; service/http/admin/keys.py checks orders against the same.
KEY_SCOPES = ("inference", "read")
KEY_CLASSES = ("interactive", "standard", "batch")


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """``shown``: how the key begins. ``state``: valid, expired or revoked. ``source``: store or
    file. ``tokens_today``: used by its tenant this day of UTC, if that is limited."""

    id: str
    alias: str
    shown: str
    state: str
    source: str
    created: float
    expires: float | None
    last_used: float | None
    scopes: tuple[str, ...]
    models: tuple[str, ...] | None
    service_class: str
    weight: float
    priority: bool
    requests_per_minute: int | None
    tokens_per_minute: int | None
    concurrent_requests: int | None
    tokens_per_day: int | None
    tokens_today: int | None = None


class KeyRows(msgspec.Struct, frozen=True):
    """``are_stored``: keys can be made here."""

    keys: tuple[KeyRow, ...]
    are_stored: bool


class NewKey(msgspec.Struct, frozen=True):
    """``key``: must be kept by the caller; it is never sent again. ``replaced``: keys that end
    when they expire."""

    key: str
    row: KeyRow
    replaced: tuple[KeyRow, ...] = ()


class RevokedKeys(msgspec.Struct, frozen=True):
    revoked: tuple[KeyRow, ...]
