"""A server's API keys, and the caller identified by a request's key."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable

from service.api_keys import ApiKey
from service.errors import UnauthorizedError
from service.tenants.caller import Caller


class KeyRing:
    """Holds only the keys' SHA-256 digests. Keys of one alias belong to one tenant, which is known
    by the digest of the first of them. The requests of a server's only tenant may be prioritized
    with any of its keys. ``tracing``: aliases of the callers who may sample; empty: those whose
    requests may be prioritized."""

    def __init__(self, keys: Iterable[ApiKey], tracing: Collection[str] = ()) -> None:
        keys = tuple(keys)
        owners: dict[str, str] = {}  # by alias
        for key in keys:
            owners.setdefault(key.alias, _digest(key.key.encode()).hex())
        shares = len(owners) > 1
        self._callers: dict[bytes, Caller] = {}  # by digest
        for text, key in (*((key.key, key) for key in keys), *((key.written, key) for key in keys)):
            may_hurry = not shares or key.has_priority
            caller = Caller(
                owner=owners[key.alias],
                alias=key.alias,
                shares=shares,
                may_hurry=may_hurry,
                may_sample=key.alias in tracing if tracing else may_hurry,
            )
            self._callers.setdefault(_digest(text.encode()), caller)

    def __bool__(self) -> bool:
        return bool(self._callers)

    def check(self, authorization: bytes, api_key: bytes = b"") -> Caller:
        """Return the caller whose key is in ``Authorization: Bearer`` or else ``x-api-key``. All
        keys are compared, each in constant time. Raises UnauthorizedError if the key is missing or
        unknown."""
        key = _presented_key(authorization, api_key)
        if not key:
            raise UnauthorizedError(
                "You didn't provide an API key. Send it as 'Authorization: Bearer KEY' or as "
                "'x-api-key: KEY'."
            )
        digest = _digest(key)
        found: Caller | None = None
        for known, caller in self._callers.items():
            if hmac.compare_digest(digest, known):
                found = caller
        if found is None:
            raise UnauthorizedError("Incorrect API key provided.")
        return found


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _presented_key(authorization: bytes, api_key: bytes) -> bytes:
    """Return the key in ``Authorization: Bearer``, or else in ``x-api-key``; empty if there is
    none."""
    scheme, _, key = authorization.partition(b" ")
    if scheme.lower() != b"bearer" or not key.strip():
        key = api_key
    return key.strip()
