"""How many tokens of a long prompt a step computes that has nothing else to do.

A request that comes while a step runs waits for its end, so it should be short; but each step reads
all weights, so it should not be small.
"""

from __future__ import annotations

# Fewer rows use a CPU less well. Multiples of it, as some layers compute in chunks of so many.
_FEWEST = 256


class StepLength:
    """``tokens``: as many as take about ``seconds``, by the last step that said something of it,
    and at most twice as many as that had."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.tokens = _FEWEST

    def observe(self, tokens: int, seconds: float) -> None:
        """Record how long a step took."""
        if tokens < _FEWEST // 2:  # what it took is not what its tokens cost
            return
        fitting = 2 * tokens
        if seconds > 0:
            fitting = min(fitting, int(tokens * self._seconds / seconds))
        self.tokens = max(_FEWEST, fitting // _FEWEST * _FEWEST)
