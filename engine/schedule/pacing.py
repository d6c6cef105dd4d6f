"""Limits how much of a prompt a step may compute.

A step lasts as long as all its work, and each running stream gets one token from it: a large prompt
chunk delays every stream's next token. So while streams run, a step's prompt tokens are limited
such that it takes at most ``slowdown`` times as long as without them. How long a step takes is read
from earlier ones with about as many decodes (``engine.schedule.costs``). Beyond the largest of
them it is estimated from their slope and from prompts that were computed alone, and tried in
bounded steps: what a device does for free says nothing about where that ends.

Without streams, a long prompt's step delays the requests that come while it runs. Where a short
step is as efficient as a long one, it takes about ``step_seconds``
(``engine.schedule.step_length``).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median_low
from typing import NamedTuple

from engine.schedule.costs import FORGOTTEN_AFTER, CostCurve, CostPoint, slope
from engine.schedule.step_length import StepLength

# Used until their cost is known: enough tokens to estimate it.
_FIRST_TOKENS = 64
# How often a step has no prompt tokens, as otherwise the time of streams alone would never be known
# under load.
ALONE_EVERY = 64
# After this many steps, sizes that took too long may be tried again.
LEARN_EVERY = 16
# How much larger than any step that was fast enough the next one may be; after a still larger one
# took too long, the second.
_GROWTH = 2.0
_CAREFUL_GROWTH = 1.25
# After a step this much slower than allowed the next one is smaller, even if earlier ones of its
# size were fast enough: a prompt with a longer context may have come.
_TOO_SLOW = 1.1
# Two such steps among so many, and what was learnt before them is forgotten: one step may be slow
# for unrelated reasons.
_TWICE_WITHIN = 3
# If a single prompt token exceeds the allowed time (a long context, or because there is no recorded
# step for it), the other tokens may still take this share of it. With less, prompts would hardly
# progress; with more, streams would be delayed even further.
_SHARE_OF_JOINING = 0.25
_REMEMBERED = 5
# More tokens than any step has.
ANY_LENGTH = 1 << 30


class PromptLimits(NamedTuple):
    """Tokens of all prompts in a step, and of long ones."""

    prompts: int = ANY_LENGTH
    length: int = ANY_LENGTH


_NO_LIMITS = PromptLimits()


@dataclass(slots=True)
class _Company:
    """What is known of steps with about this many decodes. ``mixed_since``: steps with prompts
    since the decodes were last measured alone. ``newest``: prompt tokens and seconds of the newest
    of these."""

    alone: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    mixed_since: int = 0
    mixed: CostCurve = field(default_factory=CostCurve)
    newest: tuple[int, float] | None = None
    too_slow_at: int = -(1 << 30)  # the last step that was much slower than allowed

    def limit(self, slowdown: float) -> float:
        """Return how long a step with prompts may take."""
        alone, points = median_low(self.alone), self.mixed.points
        limit = slowdown * alone
        if points and points[0].tokens == 1 and points[0].seconds > limit:
            limit = max(limit, alone + (1 + _SHARE_OF_JOINING) * (points[0].seconds - alone))
        return limit

    def observe(self, prompt_tokens: int, seconds: float, slowdown: float) -> None:
        """Record a step with prompts."""
        self.mixed_since += 1
        curve = self.mixed
        curve.observe(prompt_tokens, seconds)
        self.newest = (prompt_tokens, seconds)
        if seconds > _TOO_SLOW * self.limit(slowdown):
            if curve.step - self.too_slow_at <= _TWICE_WITHIN:
                curve.forget_before(self.too_slow_at)
            self.too_slow_at = curve.step


class PrefillPacer:
    """Call ``budget`` before a step is planned, ``observe`` after it ran. Another step may run
    between the two."""

    def __init__(self, slowdown: float, step_seconds: float | None = None) -> None:
        """``slowdown``: above 1. ``step_seconds``: as in ModelInfo."""
        self._slowdown = slowdown
        self._alone = None if step_seconds is None else StepLength(step_seconds)
        self._companies: dict[int, _Company] = {}  # by the number of decodes, in powers of two
        self._prompts = CostCurve()  # alone

    def observe(self, decodes: int, prompt_tokens: int, seconds: float) -> None:
        """Record that a step of this much work took ``seconds``."""
        if not decodes:
            if prompt_tokens:
                self._prompts.observe(prompt_tokens, seconds)
                if self._alone is not None:
                    self._alone.observe(prompt_tokens, seconds)
            return
        size = decodes.bit_length()
        company = self._companies.get(size)
        if not prompt_tokens:
            if company is None:
                company = self._companies[size] = _Company()
            company.alone.append(seconds)
            company.mixed_since = 0
        elif company is not None:  # else it was planned when there were fewer
            company.observe(prompt_tokens, seconds, self._slowdown)

    def limits(self, decodes: int) -> PromptLimits:
        """Return what a step may have of prompts, besides ``decodes`` decodes."""
        if decodes:
            return PromptLimits(prompts=self.budget(decodes))
        return _NO_LIMITS if self._alone is None else PromptLimits(length=self._alone.tokens)

    def budget(self, decodes: int) -> int:
        """Return how many prompt tokens may join ``decodes`` (at least one) decodes."""
        company = self._companies.get(decodes.bit_length())
        if company is None or company.mixed_since >= ALONE_EVERY:
            return 0
        alone = median_low(company.alone)
        limit = company.limit(self._slowdown)
        curve = company.mixed
        if not curve.points:
            return self._first(decodes, limit - alone)
        smallest = curve.points[0]
        if limit > self._slowdown * alone and curve.step - smallest.step >= ALONE_EVERY:
            return 1
        tokens = self._fitting(decodes, curve, alone, limit)
        if company.newest is not None and company.newest[1] > _TOO_SLOW * limit:
            tried, took = company.newest
            tokens = min(tokens, int(tried * (limit - alone) / (took - alone)))
        if tokens > 1:
            return tokens
        beyond = [point.step for point in curve.points if point.tokens > 1]
        is_known = beyond and curve.step - max(beyond) < LEARN_EVERY
        return 1 if is_known or smallest.tokens > 1 else 2

    def _first(self, decodes: int, spare: float) -> int:
        """Return how many tokens to begin with. No step of this kind was measured yet."""
        low, high = 1, _FIRST_TOKENS
        while low < high:
            middle = (low + high + 1) // 2
            fits = self._prompt_seconds(decodes, 0, middle) <= spare
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def _fitting(self, decodes: int, curve: CostCurve, alone: float, limit: float) -> int:
        """Return the most tokens whose step, by what is known, takes at most ``limit``."""
        fast = [CostPoint(0, alone, 0)]
        slow: CostPoint | None = None  # but some time ago
        for point in curve.points:
            if point.seconds <= limit:
                fast.append(point)
            elif curve.step - point.step < LEARN_EVERY:
                return fast[-1].tokens + int((limit - fast[-1].seconds) / slope(fast[-1], point))
            elif slow is None:
                slow = point
        last = fast[-1]
        if not last.is_measured:
            return last.tokens
        rate = max((slope(point, last) for point in fast[-3:-1]), default=0.0)
        growth = _GROWTH
        if slow is not None:
            growth = _CAREFUL_GROWTH
            if curve.step - slow.step < FORGOTTEN_AFTER:
                rate = max(rate, slope(last, slow) / 2)
        low, high = last.tokens, max(int(last.tokens * growth), last.tokens + 1)
        while low < high:
            middle = (low + high + 1) // 2
            more = max(
                rate * (middle - last.tokens), self._prompt_seconds(decodes, last.tokens, middle)
            )
            fits = last.seconds + more <= limit
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def _prompt_seconds(self, decodes: int, tokens: int, more: int) -> float:
        """Estimate by how much ``more`` prompt tokens, instead of ``tokens``, lengthen a step."""
        prompts = self._prompts
        return prompts.seconds(decodes + more) - prompts.seconds(decodes + tokens)
