"""A server's API keys, and the caller identified by a request's key."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from service.errors import UnauthorizedError
from service.tenants.caller import Caller


class KeyRing:
    """Holds only the keys' SHA-256 digests. ``hurried``: the ``keys`` whose requests may be
    prioritized over others'; a server's only key may always be."""

    def __init__(self, keys: Iterable[str], hurried: Iterable[str] = ()) -> None:
        self._digests = list(dict.fromkeys(_digest(key.encode()) for key in keys))
        self._hurried = frozenset(_digest(key.encode()) for key in hurried)

    def __bool__(self) -> bool:
        return bool(self._digests)

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
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(digest, known)
        if not found:
            raise UnauthorizedError("Incorrect API key provided.")
        shares = len(self._digests) > 1
        return Caller(
            owner=digest.hex(),
            shares=shares,
            may_hurry=not shares or digest in self._hurried,
        )


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _presented_key(authorization: bytes, api_key: bytes) -> bytes:
    """Return the key in ``Authorization: Bearer``, or else in ``x-api-key``; empty if there is
    none."""
    scheme, _, key = authorization.partition(b" ")
    if scheme.lower() != b"bearer" or not key.strip():
        key = api_key
    return key.strip()
