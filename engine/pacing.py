"""How much of a prompt a step may compute beside running streams.

A step lasts as long as everything in it, and each running stream gets one token of it: a large
chunk of somebody's prompt holds up everybody's next token. So while streams run, a step's prompt
tokens are bounded such that it lasts at most ``slowdown`` times as long as without them. What a
step costs is learnt from those that ran: ``seconds = decodes' seconds + cost * prompt tokens``.
"""

from __future__ import annotations

from dataclasses import dataclass

# However little time there is, prompts make some progress.
LEAST_TOKENS = 16
# Where nothing is known of their cost: enough to learn from.
_FIRST_TOKENS = 64
# So often one step holds no prompt, or under load it would never be known what streams alone take.
ALONE_EVERY = 64
# Weights of the newest step: decodes change slowly, a prompt token's cost grows with the context.
_DECODE_WEIGHT = 0.2
_TOKEN_WEIGHT = 0.5


@dataclass(slots=True)
class _Decodes:
    """What steps of about so many decodes take, and how many had prompts too since that was
    measured."""

    seconds: float
    mixed_since: int = 0


class PrefillPacer:
    """``budget`` before a step is planned, ``observe`` once it ran."""

    def __init__(self, slowdown: float) -> None:
        """``slowdown``: above 1."""
        self._share = slowdown - 1
        self._decodes: dict[int, _Decodes] = {}  # by their number, in powers of two
        self._token_seconds: float | None = None

    def budget(self, decodes: int) -> int:
        """Prompt tokens that may join so many decodes (at least one)."""
        known, token = self._decodes.get(decodes.bit_length()), self._token_seconds
        if known is None or known.mixed_since >= ALONE_EVERY:
            return 0
        if token is None:
            return _FIRST_TOKENS
        granted = self._share * known.seconds
        if token * LEAST_TOKENS >= granted:
            return LEAST_TOKENS
        return int(granted / token) if token else 1 << 30

    def observe(self, decodes: int, prompt_tokens: int, seconds: float) -> None:
        """A step of this much work took ``seconds``."""
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
        token = max(seconds - alone, 0.0) / prompt_tokens
        before = token if self._token_seconds is None else self._token_seconds
        self._token_seconds = before + _TOKEN_WEIGHT * (token - before)
