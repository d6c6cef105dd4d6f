"""Limits how much of a prompt a step may compute while streams are running.

A step lasts as long as all its work, and each running stream gets one token from it: a large prompt
chunk delays every stream's next token. So while streams run, a step's prompt tokens are limited
such that it takes at most ``slowdown`` times as long as without them. The cost of a step is
estimated from earlier ones: ``seconds = decodes' seconds + joining + cost * (prompt tokens - 1)``,
where ``joining`` is the cost of a single prompt token: attending to a long context, or not being
able to replay a recorded decode step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median_low

# Used until their cost is known: enough tokens to estimate it.
_FIRST_TOKENS = 64
# How often a step has no prompt tokens, as otherwise the cost of streams alone would never be known
# under load.
ALONE_EVERY = 64
# How often a step with prompts has just one prompt token, to measure the joining cost; if all steps
# have just one, how often one has two.
LEARN_EVERY = 16
# If joining alone exceeds the allowed time, the other tokens may still take this share of it. With
# less, prompts would hardly progress; with more, streams would be delayed even further.
_SHARE_OF_JOINING = 0.25
# The weight of the newest step; decode times change slowly.
_DECODE_WEIGHT = 0.2
# A step may be slow for unrelated reasons: use the median of this many.
_REMEMBERED = 3
_UNBOUNDED = 1 << 30


@dataclass(slots=True)
class _Decodes:
    """The time of steps with about this many decodes, and the number of steps with prompts since it
    was measured."""

    seconds: float
    mixed_since: int = 0


@dataclass(slots=True)
class _Cost:
    """A cost in seconds as measured in the last steps, and the number of steps since the newest."""

    newest: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    age: int = 0

    @property
    def seconds(self) -> float:
        return median_low(self.newest)

    def observe(self, seconds: float) -> None:
        self.newest.append(max(seconds, 0.0))
        self.age = 0


class PrefillPacer:
    """Call ``budget`` before a step is planned, ``observe`` after it ran."""

    def __init__(self, slowdown: float) -> None:
        """``slowdown``: above 1."""
        self._share = slowdown - 1
        self._decodes: dict[int, _Decodes] = {}  # by their number, in powers of two
        self._joining = _Cost()
        self._token = _Cost()

    def budget(self, decodes: int) -> int:
        """Return how many prompt tokens may join ``decodes`` (at least one) decodes."""
        known = self._decodes.get(decodes.bit_length())
        if known is None or known.mixed_since >= ALONE_EVERY:
            return 0
        if not self._token.newest:
            return _FIRST_TOKENS
        if not self._joining.newest or self._joining.age >= LEARN_EVERY:
            return 1
        joining, token = self._joining.seconds, self._token.seconds
        spare = max(self._share * known.seconds - joining, _SHARE_OF_JOINING * joining)
        tokens = 1 + (int(spare / token) if spare < token * _UNBOUNDED else _UNBOUNDED)
        return 2 if tokens == 1 and self._token.age >= LEARN_EVERY else tokens

    def observe(self, decodes: int, prompt_tokens: int, seconds: float) -> None:
        """Record that a step of this much work took ``seconds``."""
        size = decodes.bit_length()
        known = self._decodes.get(size)
        if not prompt_tokens:
            if known is None:
                self._decodes[size] = _Decodes(seconds)
            else:
                known.seconds += _DECODE_WEIGHT * (seconds - known.seconds)
                known.mixed_since = 0
            return
        alone = 0.0
        if decodes:
            if known is None:  # planned when there were fewer
                return
            known.mixed_since += 1
            alone = known.seconds
        self._joining.age += 1
        self._token.age += 1
        if prompt_tokens == 1:
            self._joining.observe(seconds - alone)
        else:
            joining = self._joining.seconds if self._joining.newest else 0.0
            self._token.observe((seconds - alone - joining) / (prompt_tokens - 1))
