"""A server's API keys, and the caller identified by a request's key."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from engine.queueing import ServiceClass
from observability.logging import get_logger
from service.api_keys import ApiKey
from service.errors import StoreUnavailableError, UnauthorizedError, UnknownKeyError
from service.tenants.caller import ALL_SCOPES, Caller
from service.tenants.key_limits import NO_LIMITS
from service.tenants.limit_memory import MOST_TENANTS
from service.tenants.stored_key import KeyGrant, StoredKey, scopes_of, tenant_grants

_RETRY_AFTER = 2

_log = get_logger()


class _Known(NamedTuple):
    digest: bytes
    caller: Caller
    stored: StoredKey | None = None


class KeyRing:
    """Holds only the keys' SHA-256 digests. Keys of one alias belong to one tenant, which is known
    by the digest of the first of them, even if that has ended. The requests of a server's only
    tenant may be prioritized with any of its keys. ``tracing``: aliases of the callers who may
    sample; empty: those whose requests may be prioritized. ``changes``: ``replace`` may
    add further keys, so a key is needed even before there is one."""

    def __init__(
        self, keys: Iterable[ApiKey], tracing: Collection[str] = (), *, changes: bool = False
    ) -> None:
        self._fixed = tuple(keys)
        self._tracing = tracing
        self._changes = changes
        self._missing = ""  # where keys come from that are not known yet
        # What is looked up is a digest under this key, so that the time it takes says nothing
        # about the digests that are known.
        self._index_key = secrets.token_bytes(32)
        self._known: dict[bytes, _Known] = {}
        self._last_used: dict[str, float] = {}  # by id
        self._said_many = False
        self._grants: dict[str, KeyGrant] = {}
        self._limited: dict[str, KeyGrant] = {}
        self._learn(())

    def __bool__(self) -> bool:
        return bool(self._known) or self._changes

    def replace(self, stored: Sequence[StoredKey], *, missing: str = "") -> None:
        """Know these keys, the oldest first, besides those of the start, and no others. It may be
        called in a thread, by one at a time. ``missing``: what else holds keys but could not be
        read yet."""
        self._learn(stored)
        self._missing = missing  # last: until then no key is called wrong

    def take_use(self) -> dict[str, float]:
        """Return when which stored keys were last used, by id, since the last call."""
        used, self._last_used = self._last_used, {}
        return used

    def limited(self) -> dict[str, KeyGrant]:
        """Return what sets the limits of each tenant that has any, by alias."""
        return self._limited

    def check(self, authorization: bytes, api_key: bytes = b"") -> Caller:
        """Return the caller whose key is in ``Authorization: Bearer`` or else ``x-api-key``. Its
        digest is compared in constant time. Raises UnauthorizedError if the key is missing or has
        ended, UnknownKeyError if it is unknown, StoreUnavailableError if it may be one that could
        not be read yet."""
        key = _presented_key(authorization, api_key)
        if not key:
            raise UnauthorizedError(
                "You didn't provide an API key. Send it as 'Authorization: Bearer KEY' or as "
                "'x-api-key: KEY'."
            )
        digest = _digest(key)
        found = self._known.get(self._index(digest))
        if found is None or not hmac.compare_digest(digest, found.digest):
            if self._missing:
                raise StoreUnavailableError(
                    f"The server cannot read its API keys yet ({self._missing}); retry.",
                    retry_after=_RETRY_AFTER,
                )
            raise UnknownKeyError("Incorrect API key provided.")
        stored = found.stored
        if stored is not None:
            now = time.time()
            if not stored.is_valid(now):
                if stored.revoked is not None:
                    raise UnauthorizedError("This API key was revoked.")
                raise UnauthorizedError("This API key has expired.")
            self._last_used[stored.id] = now
        return found.caller

    def _learn(self, stored: Sequence[StoredKey]) -> None:
        owners: dict[str, str] = {}  # by alias
        for key in self._fixed:
            owners.setdefault(key.alias, _digest(key.key.encode()).hex())
        for one in stored:
            owners.setdefault(one.grant.alias, one.digest)
        shares = self._changes or len(owners) > 1
        self._grants = tenant_grants(stored, time.time())
        self._limited = {alias: grant for alias, grant in self._grants.items() if grant.limits}
        if len(self._limited) > MOST_TENANTS and not self._said_many:
            self._said_many = True
            _log.warning(
                "more tenants have limits than can be counted at once; some may be refused",
                tenants=len(self._limited),
                most=MOST_TENANTS,
            )
        known: dict[bytes, _Known] = {}
        fixed = self._fixed
        for text, key in (
            *((key.key, key) for key in fixed),
            *((key.written, key) for key in fixed),
        ):
            may_hurry = not shares or key.has_priority
            caller = self._caller(key.alias, owners[key.alias], None, shares, may_hurry)
            digest = _digest(text.encode())
            known.setdefault(self._index(digest), _Known(digest, caller))
        callers: dict[KeyGrant, Caller] = {}
        for one in stored:
            caller = callers.get(one.grant) or self._caller(
                one.grant.alias, owners[one.grant.alias], one.grant, shares, one.grant.priority
            )
            callers[one.grant] = caller
            digest = bytes.fromhex(one.digest)
            known.setdefault(self._index(digest), _Known(digest, caller, one))
        self._known = known

    def _caller(
        self, alias: str, owner: str, grant: KeyGrant | None, shares: bool, may_hurry: bool
    ) -> Caller:
        tenant = self._grants.get(alias)  # its limits count for every key of the alias
        models = None if grant is None or grant.models is None else frozenset(grant.models)
        return Caller(
            owner=owner,
            alias=alias,
            shares=shares,
            may_hurry=may_hurry,
            may_sample=alias in self._tracing if self._tracing else may_hurry,
            scopes=ALL_SCOPES if grant is None else scopes_of(grant),
            models=models,
            service_class=ServiceClass.STANDARD if tenant is None else tenant.service_class,
            weight=1.0 if tenant is None else tenant.weight,
            limits=NO_LIMITS if tenant is None else tenant.limits,
        )

    def _index(self, digest: bytes) -> bytes:
        return hashlib.blake2b(digest, digest_size=16, key=self._index_key).digest()


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _presented_key(authorization: bytes, api_key: bytes) -> bytes:
    """Return the key in ``Authorization: Bearer``, or else in ``x-api-key``; empty if there is
    none."""
    scheme, _, key = authorization.partition(b" ")
    if scheme.lower() != b"bearer" or not key.strip():
        key = api_key
    return key.strip()
