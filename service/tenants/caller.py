"""Who sends a request, and what its key is allowed if several keys share the server."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """``owner``: the digest of the first key of the caller's tenant; empty if no key is needed.
    ``alias``: the name that logs and metrics have for it; None if no key is needed. ``shares``:
    there are other tenants. ``may_hurry``: its requests may be prioritized over others'.
    ``may_sample``: the sampled flag of its trace context decides whether a request is traced."""

    owner: str = ""
    alias: str | None = None
    shares: bool = False
    may_hurry: bool = True
    may_sample: bool = True

    def cache_salt(self, asked: str) -> str:
        """Return the salt under which the caller's prompts share blocks of the prefix cache.
        ``asked``: the salt in the request.

        A cache hit must not reveal one key's prompts to another. The digest that keys the HMAC
        cannot be computed without the API key itself, so no key can produce another's salt. This is
        stateless: a restarted engine or worker computes the same salts.
        """
        if not self.shares:
            return asked
        return hmac.new(bytes.fromhex(self.owner), asked.encode(), hashlib.sha256).hexdigest()

    def priority(self, asked: int) -> int:
        """Return the request's effective priority; lower runs first."""
        return asked if self.may_hurry else max(0, asked)


# For servers that need no key.
ANYBODY = Caller()
