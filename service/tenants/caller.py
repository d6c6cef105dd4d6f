"""Whose a request is, and what follows from that where several keys share one server."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """``owner``: the digest of the caller's key; empty where no key is needed. ``shares``: others
    have keys too. ``may_hurry``: its requests may go ahead of others'."""

    owner: str = ""
    shares: bool = False
    may_hurry: bool = True

    def cache_salt(self, asked: str) -> str:
        """The salt under which its prompts share blocks of the prefix cache; ``asked``: its own.

        What one key asked shall not be told to another by a cache hit. The digest that keys the
        HMAC cannot be had without the API key itself, so no key can name another's salt; it needs
        no state, so an engine or a worker that is started again finds the same salts.
        """
        if not self.shares:
            return asked
        return hmac.new(bytes.fromhex(self.owner), asked.encode(), hashlib.sha256).hexdigest()

    def priority(self, asked: int) -> int:
        """The priority it gets; lower runs first."""
        return asked if self.may_hurry else max(0, asked)


# Where no key is needed.
ANYBODY = Caller()
