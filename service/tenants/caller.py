"""Who sends a request, and what its key is allowed if several keys share the server."""

from __future__ import annotations

import enum
import hashlib
import hmac
from dataclasses import dataclass

from engine.queueing import ServiceClass
from service.tenants.key_limits import NO_LIMITS, KeyLimits
from service.tenants.tier import Tier


class KeyScope(enum.StrEnum):
    """What an API key may do. ``INFERENCE``: everything that a client can; ``READ``: see the
    models, the server's health and its own usage, but generate nothing."""

    INFERENCE = "inference"
    READ = "read"


ALL_SCOPES = frozenset(KeyScope)
_TENANT_CHARS = 16  # of the owner's digest: enough to distinguish tenants


@dataclass(frozen=True, slots=True)
class Caller:
    """``owner``: the digest of the first key of the caller's tenant; empty if no key is needed.
    ``alias``: the name that logs and metrics have for it; None if no key is needed. ``shares``:
    there are other tenants. ``may_hurry``: its requests may be prioritized over others'.
    ``may_sample``: the sampled flag of its trace context decides whether a request is traced.
    ``scopes``: what its key may do. ``models``: the names it may use; None: all. ``service_class``
    and ``weight``: its place and its share where requests wait. ``limits``: of its tenant."""

    owner: str = ""
    alias: str | None = None
    shares: bool = False
    may_hurry: bool = True
    may_sample: bool = True
    scopes: frozenset[KeyScope] = ALL_SCOPES
    models: frozenset[str] | None = None
    service_class: ServiceClass = ServiceClass.STANDARD
    weight: float = 1.0
    limits: KeyLimits = NO_LIMITS

    def may(self, scope: KeyScope) -> bool:
        """True if the key's scopes suffice for a route of this one."""
        return scope in self.scopes or KeyScope.INFERENCE in self.scopes

    def may_use(self, model: str) -> bool:
        return self.models is None or model in self.models

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

    @property
    def tenant(self) -> str:
        """Return the name under which the engine shares its work among tenants; empty if there is
        only one."""
        return self.owner[:_TENANT_CHARS] if self.shares else ""

    def priority(self, asked: int) -> int:
        """Return the request's effective priority; lower runs first."""
        return asked if self.may_hurry else max(0, asked)

    def class_of(self, asked: int, tier: Tier | None = None) -> ServiceClass:
        """Return the class of a request with this priority and tier. A negative priority by
        itself orders only the tenant's own requests, so one that is allowed also gets the most
        urgent class."""
        if tier is Tier.FLEX:
            return ServiceClass.BATCH
        hurries = tier is Tier.PRIORITY or (self.shares and asked < 0)
        if hurries and self.may_hurry:
            return ServiceClass.INTERACTIVE
        if tier is Tier.STANDARD and self.service_class is ServiceClass.INTERACTIVE:
            return ServiceClass.STANDARD
        return self.service_class


# For servers that need no key.
ANYBODY = Caller()
