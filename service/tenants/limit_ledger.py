"""Enforces the limits of tenants, exactly over all API workers of a server, and over
replicas as exactly as they report to each other.

A request is counted twice: ``enter`` takes a place when its headers are there, before any work;
``take`` reserves its prompt and the most it may generate, once the prompt is tokenized; ``settle``
puts right at its end what it really used. In no 60 seconds are more requests admitted, or more
tokens reserved, than the limit; what was counted in one second counts until 60 seconds after its
end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from service.errors import (
    LimitError,
    LimitState,
    OverloadedError,
    QuotaError,
    RequestLimitError,
    RequestOverLimitError,
    TokenLimitError,
)
from service.tenants.key_limits import KeyLimits
from service.tenants.limit_memory import LimitMemory, LimitMemoryFullError
from service.tenants.tenant_cells import (
    DAY,
    LAST_DAY,
    LAST_USED,
    NEWEST_REQUEST,
    NEWEST_TOKENS,
    OTHERS_AT,
    OTHERS_OPEN,
    OTHERS_REQUESTS,
    OTHERS_TOKENS,
    REQUESTS,
    SECOND,
    TOKENS,
    USED,
    WINDOW,
    TenantCells,
)
from service.wording import are, plural

_DAY_SECONDS = 86_400
_ROOM_WAIT = WINDOW  # seconds: then all limits per minute of others may be unused
_UNKNOWN_WAIT = 15


@dataclass(slots=True)
class LimitUse:
    """What one request has taken of its tenant's limits. ``state``: after that."""

    alias: str
    limits: KeyLimits
    second: int
    state: LimitState
    token_second: int = 0
    tokens: int = 0


class MinuteUse(NamedTuple):
    """What a tenant has used in the last minute, and its requests in progress."""

    requests: int = 0
    tokens: int = 0
    in_progress: int = 0


class LimitLedger:
    """``clock`` and ``wall``: the monotonic time, and the calendar's.
    ``descriptor``: of the memory that all workers count in; None: this one counts alone."""

    def __init__(
        self,
        descriptor: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.memory = LimitMemory(descriptor, clock=clock, wall=wall, is_stored=self._is_stored)
        self._clock = clock
        self._wall = wall
        # What the store has of a day, by alias; of the last two days that were noted.
        self._stored: dict[int, dict[str, int]] = {}

    def enter(self, alias: str, limits: KeyLimits) -> LimitUse:
        """Count a request. Raises LimitError, with the ``state``; then nothing is counted."""
        now = self._clock()
        with self.memory.lock():
            tenant = self._tenant(alias, now)
            self._check_requests(tenant, limits, now)
            self._check_tokens(tenant, limits, 1, now)
            second = int(now)
            tenant.count_requests(second, 1)
            tenant.open(1)
            return LimitUse(alias, limits, second, _state(tenant, limits, now))

    def take(self, use: LimitUse, tokens: int) -> None:
        """Reserve tokens for a request that has entered. Raises LimitError; then none are."""
        now, limits = self._clock(), use.limits
        with self.memory.lock():
            tenant = self._tenant(use.alias, now)
            self._check_tokens(tenant, limits, tokens, now)
            use.token_second, use.tokens = int(now), tokens
            tenant.count_tokens(use.token_second, tokens)
            tenant.reserve(tokens)
            use.state = _state(tenant, limits, now)

    def settle(self, use: LimitUse, used: int, *, counts: bool = True) -> None:
        """End a request that used so many tokens. ``counts``: False for one that was refused, which
        then costs its tenant nothing. Call it once."""
        now = self._clock()
        with self.memory.lock():
            tenant = self._tenant(use.alias, now)
            tenant.open(-1)
            if not counts and tenant.has(use.second):
                tenant.count_requests(use.second, -1)
            if used and use.limits.tokens_per_day is not None:
                tenant[USED] += used
            if use.tokens:
                tenant.reserve(-use.tokens)
            spared = use.tokens - used
            if spared < 0:
                tenant.count_tokens(int(now), -spared)
            elif spared and tenant.has(use.token_second):
                tenant.count_tokens(use.token_second, -spared)

    def state(self, alias: str, limits: KeyLimits) -> LimitState:
        """Return what is left of the minute: all, if there is no room to count for the tenant."""
        now = self._clock()
        with self.memory.lock():
            tenant = self._tenant_or_none(alias, now)
            if tenant is None:
                return LimitState(
                    limits.requests_per_minute or 0, 0.0, limits.tokens_per_minute or 0, 0.0
                )
            return _state(tenant, limits, now)

    def used_today(self, alias: str) -> int:
        """Return the tokens that were used this day; only counted with a daily budget."""
        with self.memory.lock():
            if self.memory.known(alias) is None:
                return self._stored_of(alias, self._today())
            return self._tenant(alias, self._clock())[USED]

    def note_day(self, day: int, used: Mapping[str, int]) -> None:
        """Note what the store knows of a day (of UTC, since the epoch): the usage before this
        server started, and that of other replicas."""
        stored = self._stored[day] = self._stored.pop(day, {})  # the last noted
        if len(self._stored) > 2:
            del self._stored[next(iter(self._stored))]
        for alias, tokens in used.items():
            stored[alias] = max(stored.get(alias, 0), tokens)
            with self.memory.lock():
                tenant = self.memory.known(alias)
                if tenant is None:
                    continue
                for of, count in ((DAY, USED), (LAST_DAY, LAST_USED)):
                    if tenant[of] == day:
                        tenant[count] = max(tenant[count], tokens)

    def _stored_of(self, alias: str, day: int) -> int:
        return self._stored.get(day, {}).get(alias, 0)

    def _is_stored(self, alias: str, day: int, tokens: int) -> bool:
        return self._stored_of(alias, day) >= tokens

    # --- other replicas ---------------------------------------------------------------------------

    def minute_use(self, aliases: Iterable[str]) -> dict[str, MinuteUse]:
        """Return what tenants of this server have used, without those that have used nothing."""
        found = {}
        for alias in aliases:
            with self.memory.lock():
                if self.memory.known(alias) is None:  # it has just given its place up
                    continue
                tenant = self._tenant(alias, self._clock())
                use = MinuteUse(tenant[REQUESTS], tenant[TOKENS], tenant.open_requests)
            if any(use):
                found[alias] = use
        return found

    def note_others(self, used: Mapping[str, MinuteUse], aliases: Iterable[str]) -> None:
        """Note what these tenants have used of other replicas; nothing, where ``used`` has none."""
        for alias in aliases:
            use = used.get(alias, MinuteUse())
            with self.memory.lock():
                if alias not in used and self.memory.known(alias) is None:
                    continue
                tenant = self._tenant_or_none(alias, self._clock())
                if tenant is None:
                    continue
                tenant[OTHERS_REQUESTS], tenant[OTHERS_TOKENS] = use.requests, use.tokens
                tenant[OTHERS_OPEN], tenant[OTHERS_AT] = use.in_progress, tenant[SECOND]

    # --- checks -----------------------------------------------------------------------------------

    def _tenant_or_none(self, alias: str, now: float) -> TenantCells | None:
        try:
            return self._tenant(alias, now)
        except OverloadedError:
            return None

    def _tenant(self, alias: str, now: float) -> TenantCells:
        try:
            tenant = self.memory.tenant(alias)
        except LimitMemoryFullError as error:
            raise OverloadedError(
                f"The server cannot count for another key: {error}. Retry in {_ROOM_WAIT} s.",
                retry_after=_ROOM_WAIT,
            ) from None
        tenant.advance(int(now))
        today = self._today()
        if tenant[DAY] != today:
            tenant.turn_to(today, self._stored_of(alias, today))
        return tenant

    def _today(self) -> int:
        return int(self._wall()) // _DAY_SECONDS

    def _check_requests(self, tenant: TenantCells, limits: KeyLimits, now: float) -> None:
        most = limits.concurrent_requests
        if most is not None and tenant.all_open >= most:
            self.memory.sweep()  # a worker may have died with requests in progress
        if most is not None and tenant.all_open >= most:
            raise _refused(
                RequestLimitError(
                    f"{plural(most, 'request')} of this key {'is' if most == 1 else 'are'} in "
                    "progress, the most it may have at once; send the next one when one has ended."
                ),
                _state(tenant, limits, now),
            )
        most = limits.requests_per_minute
        if most is not None and tenant.all_requests >= most:
            wait = _wait(tenant, REQUESTS, tenant.all_requests + 1 - most, now)
            error = RequestLimitError(
                f"This key may send {plural(most, 'request')} per minute, and has; "
                f"retry in {wait} s.",
                retry_after=wait,
            )
            raise _refused(error, _state(tenant, limits, now))

    def _check_tokens(
        self, tenant: TenantCells, limits: KeyLimits, tokens: int, now: float
    ) -> None:
        error: LimitError | None = _over_limit(limits, tokens)
        budget = limits.tokens_per_day
        if error is None and budget is not None:
            error = self._check_budget(tenant, budget, tokens)
        most = limits.tokens_per_minute
        if error is None and most is not None:
            error = _check_minute(tenant, most, tokens, now)
        if error is not None:
            raise _refused(error, _state(tenant, limits, now))

    def _check_budget(self, tenant: TenantCells, budget: int, tokens: int) -> LimitError | None:
        if tenant[USED] + tenant.reserved + tokens > budget:
            self.memory.sweep()  # a worker may have died with tokens reserved
        used, held = tenant[USED], tenant.reserved
        if used + held + tokens <= budget:
            return None
        needed = f", and this request may need {tokens:,}" if tokens > 1 else ""
        if used + tokens <= budget:
            return TokenLimitError(
                f"This key may use {plural(budget, 'token')} per day; {are(used)} used, "
                f"{are(held)} reserved by requests in progress{needed}. Retry when some have ended."
            )
        smaller = "Shorten the prompt, limit the output, or retry" if needed else "Retry"
        return QuotaError(
            f"This key may use {plural(budget, 'token')} per day; {are(used)} used{needed}. "
            f"{smaller} when the next day begins, at midnight UTC."
        )


def _over_limit(limits: KeyLimits, tokens: int) -> RequestOverLimitError | None:
    """Return the error of a request that no wait can admit."""
    for limit, period in ((limits.tokens_per_minute, "minute"), (limits.tokens_per_day, "day")):
        if limit is not None and tokens > limit:
            return RequestOverLimitError(
                f"This request may need {plural(tokens, 'token')} for prompt and output, but "
                f"this key may use {limit:,} per {period}; shorten the prompt or limit the output."
            )
    return None


def _check_minute(
    tenant: TenantCells, most: int, tokens: int, now: float
) -> TokenLimitError | None:
    missing = tenant.all_tokens + tokens - most
    if missing <= 0:
        return None
    wait = _wait(tenant, TOKENS, missing, now)
    if missing <= tenant.reserved:  # requests in progress may end at any moment
        wait = min(wait, _UNKNOWN_WAIT)
    return TokenLimitError(
        f"This key may use {plural(most, 'token')} per minute; {are(tenant.all_tokens)} used, "
        f"or reserved by requests in progress, and this request may need {tokens:,}. "
        f"Retry in {wait} s.",
        retry_after=wait,
    )


def _refused(error: LimitError, state: LimitState) -> LimitError:
    error.state = state
    return error


def _wait(tenant: TenantCells, total: int, number: int, now: float) -> int:
    """Return the seconds until ``number`` of what is counted count no more. When those of other
    replicas will, is unknown: if this one's own are not enough, ``_UNKNOWN_WAIT``."""
    if number > tenant[total]:
        return _UNKNOWN_WAIT
    return max(1, math.ceil(tenant.second_when_free(total, number) + WINDOW - now))


def _state(tenant: TenantCells, limits: KeyLimits, now: float) -> LimitState:
    requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
    return LimitState(
        0 if requests is None else max(0, requests - tenant.all_requests),
        _reset(tenant, REQUESTS, NEWEST_REQUEST, now),
        0 if tokens is None else max(0, tokens - tenant.all_tokens),
        _reset(tenant, TOKENS, NEWEST_TOKENS, now),
    )


def _reset(tenant: TenantCells, total: int, newest: int, now: float) -> float:
    return max(0.0, tenant[newest] + WINDOW - now) if tenant[total] > 0 else 0.0
