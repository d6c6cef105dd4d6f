"""API keys that Quire makes: random, shown once, and known by their SHA-256 from then on.

A plain digest is enough, because a key has 256 random bits: no table and no computer finds it from
its digest, so a secret for a keyed one would add nothing but something that can be lost.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from engine.queueing import ServiceClass
from service.api_keys import check_reserved
from service.problems import IN_WORDS
from service.tenants.caller import ALL_SCOPES, KeyScope
from service.tenants.key_limits import KeyLimits

ALIAS_PATTERN = r"^[a-z0-9_-]{1,32}$(?!\n)"  # a $ alone would match before a final newline
ALIAS_IN_WORDS = "1 to 32 of a-z, 0-9, _ and -"
KEY_MARK = "qk_"
_KEY_BYTES = 32
_ID_MARK = "key_"
_ID_BYTES = 5
_SHOWN_CHARS = len(KEY_MARK) + 6
_MOST_A_MINUTE = 10**12

_PerMinute = Annotated[int, Meta(ge=1, le=_MOST_A_MINUTE)]
_Name = Annotated[str, Meta(min_length=1, max_length=256)]


class KeyGrant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a key allows. Keys of one ``alias`` are one tenant; limits, weight and class are the
    tenant's, those of its newest key. ``priority``: its requests may go ahead of others'."""

    alias: Annotated[str, Meta(pattern=ALIAS_PATTERN, extra={IN_WORDS: ALIAS_IN_WORDS})]
    scopes: Annotated[tuple[KeyScope, ...], Meta(min_length=1, max_length=8)] = tuple(KeyScope)
    models: Annotated[tuple[_Name, ...], Meta(min_length=1, max_length=64)] | None = None
    service_class: ServiceClass = ServiceClass.STANDARD
    weight: Annotated[float, Meta(ge=0.01, le=100)] = 1.0
    priority: bool = False
    requests_per_minute: _PerMinute | None = None
    tokens_per_minute: _PerMinute | None = None
    concurrent_requests: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    tokens_per_day: Annotated[int, Meta(ge=1, le=10**15)] | None = None

    @property
    def limits(self) -> KeyLimits:
        return KeyLimits(*(getattr(self, name) for name in KeyLimits._fields))

    def check(self) -> None:
        """Raise ValueError for a reserved alias."""
        check_reserved(self.alias)


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """``id`` names it to operators, ``shown`` is how it begins. ``last_used``: to a minute or so.
    ``source``: "store" or "file". Times are seconds since the epoch."""

    id: str
    shown: str
    digest: str
    grant: KeyGrant
    created: float = 0.0
    expires: float | None = None
    revoked: float | None = None
    last_used: float | None = None
    source: str = "store"

    def is_valid(self, now: float) -> bool:
        return self.revoked is None and (self.expires is None or now < self.expires)

    def state(self, now: float) -> str:
        """Return ``valid``, ``expired`` or ``revoked``."""
        if self.revoked is not None:
            return "revoked"
        return "valid" if self.is_valid(now) else "expired"


def digest_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def new_key(grant: KeyGrant, expires: float | None = None) -> tuple[StoredKey, str]:
    """Return what is stored of a new key, and the key itself. Raises ValueError."""
    grant.check()
    now = time.time()
    if expires is not None and expires <= now:
        raise ValueError("the key would have expired already; choose a later time")
    text = KEY_MARK + _base32(_KEY_BYTES)
    stored = StoredKey(
        id=_ID_MARK + _base32(_ID_BYTES),
        shown=text[:_SHOWN_CHARS],
        digest=digest_of(text),
        grant=grant,
        created=now,
        expires=expires,
    )
    return stored, text


def _base32(size: int) -> str:
    return base64.b32encode(secrets.token_bytes(size)).decode().rstrip("=").lower()


def named(keys: Iterable[StoredKey], name: str) -> tuple[StoredKey, ...]:
    """Return the key with this id, or else those with this alias."""
    found = tuple(keys)
    return tuple(key for key in found if key.id == name) or tuple(
        key for key in found if key.grant.alias == name
    )


def tenant_grants(keys: Sequence[StoredKey], now: float) -> dict[str, KeyGrant]:
    """Return by alias the grant that sets its limits: of its newest key that is valid."""
    return {key.grant.alias: key.grant for key in keys if key.is_valid(now)}


def scopes_of(grant: KeyGrant) -> frozenset[KeyScope]:
    chosen: Collection[KeyScope] = grant.scopes
    return ALL_SCOPES if set(chosen) == ALL_SCOPES else frozenset(chosen)
