"""Shares what keys use of their limits with the other replicas of a deployment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from observability.logging import get_logger
from service.errors import StoreUnavailableError
from service.serving.keys import KeyRing
from service.serving.metering import Metering
from service.tenants.limit_ledger import MinuteUse

_SECONDS = 1.0
# Tenants to look at before other work has its turn.
_PART = 64

_NOT_SHARED = (
    "limits are not shared with other replicas: their last figures count until they are a minute "
    "old, then this replica counts alone"
)

_log = get_logger()


class LimitSource(Protocol):
    """Exchanges what tenants use with other replicas. Raises StoreUnavailableError."""

    async def exchange(
        self, replica: str, used: Mapping[str, MinuteUse]
    ) -> dict[str, MinuteUse]: ...


class LimitSharing:
    """``leads``: whether this worker shares for its server. ``seconds``: between exchanges.
    ``on_alone`` hears whether others' figures can no longer be had."""

    def __init__(
        self,
        metering: Metering,
        keys: KeyRing,
        source: LimitSource,
        leads: Callable[[], bool],
        *,
        seconds: float = _SECONDS,
        on_alone: Callable[[bool], None] = lambda alone: None,
    ) -> None:
        self._metering = metering
        self._keys = keys
        self._source = source
        self._leads = leads
        self._seconds = seconds
        self._on_alone = on_alone
        self._counts_alone = False

    async def run(self) -> None:
        """Report what tenants use here, and learn what other replicas report, every ``seconds``
        until cancelled. While the database does not respond, each replica counts alone."""
        while True:
            await asyncio.sleep(self._seconds)
            if not (self._leads() and self._has_limits()):
                self._on_alone(False)
                continue
            try:
                await self.exchange()
            except StoreUnavailableError as error:
                self._note(str(error))
            except Exception:
                _log.exception("limits could not be shared with other replicas")
            else:
                self._note(None)

    def _has_limits(self) -> bool:
        """True if a key has a limit other than the day's budget, which comes from the usage."""
        grants = self._keys.limited().values()
        return any(any(grant.limits._replace(tokens_per_day=None)) for grant in grants)

    async def exchange(self) -> None:
        """Do it once. Raises StoreUnavailableError."""
        ledger, limited = self._metering.ledger, self._keys.limited()
        used: dict[str, MinuteUse] = {}
        for aliases in _parts(ledger.memory.aliases()):
            used |= ledger.minute_use(aliases)
            await asyncio.sleep(0)
        found = await self._source.exchange(ledger.memory.identity, used)
        others = {alias: use for alias, use in found.items() if alias in limited}
        for aliases in _parts([*{*ledger.memory.aliases(), *others}]):
            ledger.note_others(others, aliases)
            await asyncio.sleep(0)

    def _note(self, error: str | None) -> None:
        """Log when sharing stops, and when it works again."""
        if error is not None and not self._counts_alone:
            _log.warning(_NOT_SHARED, error=error)
        elif error is None and self._counts_alone:
            _log.info("limits are shared with other replicas again")
        self._counts_alone = error is not None
        self._on_alone(self._counts_alone)


def _parts(aliases: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(aliases), _PART):
        yield aliases[start : start + _PART]
