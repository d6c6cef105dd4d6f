"""Counts requests against the limits of their keys."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from observability.admin_api import UsageRow
from observability.logging import get_logger
from observability.outcomes import OutcomeGroup, group_of
from service.errors import LimitState, StoreUnavailableError
from service.generation.request import GenerationRequest
from service.serving.keys import KeyRing
from service.telemetry.record import RequestRecord
from service.telemetry.usage import usage_of_request
from service.tenants.caller import Caller
from service.tenants.limit_ledger import LimitLedger, LimitUse

# A request without a token limit reserves at most so many tokens for each answer. What it generates
# beyond that counts when it ends.
UNLIMITED_TOKENS = 1024
_FOLLOW_SECONDS = 10.0
_FIRST_SECONDS = 0.5
_DAY_SECONDS = 86_400

_log = get_logger()


class UsageSource(Protocol):
    """Has what each key used, of all replicas. Raises StoreUnavailableError."""

    async def usage(self, by: str, start: float, end: float, bucket: str) -> Sequence[UsageRow]: ...


class Metering:
    """``descriptor``: of the memory in which all workers of the server count; None: this worker
    counts alone. A caller without limits costs nothing."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = descriptor
        self._ledger: LimitLedger | None = None

    @property
    def ledger(self) -> LimitLedger:
        """Mapped on first use."""
        if self._ledger is None:
            try:
                self._ledger = LimitLedger(self._descriptor)
            except OSError as error:
                _log.error("limits are counted by this worker alone", error=str(error))
                self._ledger = LimitLedger()
        return self._ledger

    def enter(self, caller: Caller) -> LimitUse | None:
        """Count a request whose work is about to begin; None if its key has no limits. Raises
        LimitError."""
        if not caller.limits:
            return None
        return self.ledger.enter(caller.alias or "", caller.limits)

    def take(self, use: LimitUse, tokens: int) -> None:
        """Reserve the tokens that it may need. Raises LimitError."""
        self.ledger.take(use, tokens)

    def settle(self, use: LimitUse, record: RequestRecord) -> None:
        """Count what an ended request has used: the same tokens as its key's usage."""
        figures = usage_of_request(record, 0.0)[1]
        counts = group_of(record.outcome) is not OutcomeGroup.REFUSED
        used = round(figures.prompt_tokens + figures.output_tokens)
        self.ledger.settle(use, used, counts=counts)

    def state(self, caller: Caller) -> LimitState:
        return self.ledger.state(caller.alias or "", caller.limits)

    async def follow(self, keys: KeyRing, source: UsageSource | None) -> None:
        """Keep the day's usage of keys with a daily budget up to date with the store, which knows
        that of before the start, and of other replicas, until cancelled."""
        if source is None:
            return
        seconds = _FIRST_SECONDS
        while True:
            await asyncio.sleep(seconds)
            if not any(grant.tokens_per_day for grant in keys.limited().values()):
                continue
            try:
                await self._learn(keys, source)
                seconds = _FOLLOW_SECONDS
            except StoreUnavailableError:
                pass  # the archive logs it
            except Exception:
                _log.exception("the usage of this day could not be read")
                seconds = _FOLLOW_SECONDS

    async def _learn(self, keys: KeyRing, source: UsageSource) -> None:
        day = int(time.time()) // _DAY_SECONDS
        start = float(day * _DAY_SECONDS)
        rows = await source.usage("key", start, start + _DAY_SECONDS, "day")
        budgets = {alias for alias, grant in keys.limited().items() if grant.tokens_per_day}
        used = {
            row.group: row.prompt_tokens + row.output_tokens for row in rows if row.group in budgets
        }
        self.ledger.note_day(day, used)


def tokens_of(request: GenerationRequest) -> int:
    """Return the most tokens that a generation will use, or about as many if its client has set no
    limit."""
    answer = request.params.max_tokens
    if not request.sets_limit:
        answer = min(answer, UNLIMITED_TOKENS)
    prompts = request.prompts
    return sum(map(len, prompts)) + len(prompts) * request.n * answer
