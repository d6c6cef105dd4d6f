"""How much of a prompt a step may compute beside running streams.

A step lasts as long as everything in it, and each running stream gets one token of it: a large
chunk of somebody's prompt holds up everybody's next token. So while streams run, a step's prompt
tokens are bounded such that it lasts at most ``slowdown`` times as long as without them. What a
step costs is learnt from those that ran: ``seconds = decodes' seconds + joining + cost * (prompt
tokens - 1)``, where ``joining`` is what a single prompt token costs: the reading of a long context,
or the end of a recorded step's repetition.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median_low

# Where nothing is known of their cost: enough to learn from.
_FIRST_TOKENS = 64
# So often one step holds no prompt, or under load it would never be known what streams alone take.
ALONE_EVERY = 64
# So often a step with prompts holds one token of them, which tells what joining costs; where all
# hold but one, so often one holds two.
LEARN_EVERY = 16
# Where joining alone takes more than is granted, the other tokens may still take this share of it.
# With less, prompts would hardly come forward; with more, streams would wait longer yet.
_SHARE_OF_JOINING = 0.25
# Decodes change slowly: the weight of the newest step.
_DECODE_WEIGHT = 0.2
# A step may last long for reasons of its own: what is in the middle of so many counts.
_REMEMBERED = 3
_UNBOUNDED = 1 << 30


@dataclass(slots=True)
class _Decodes:
    """What steps of about so many decodes take, and how many had prompts too since that was
    measured."""

    seconds: float
    mixed_since: int = 0


@dataclass(slots=True)
class _Cost:
    """Seconds, as the last steps had them, and how many steps ago the newest was."""

    newest: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    age: int = 0

    @property
    def seconds(self) -> float:
        return median_low(self.newest)

    def observe(self, seconds: float) -> None:
        self.newest.append(max(seconds, 0.0))
        self.age = 0


class PrefillPacer:
    """``budget`` before a step is planned, ``observe`` once it ran."""

    def __init__(self, slowdown: float) -> None:
        """``slowdown``: above 1."""
        self._share = slowdown - 1
        self._decodes: dict[int, _Decodes] = {}  # by their number, in powers of two
        self._joining = _Cost()
        self._token = _Cost()

    def budget(self, decodes: int) -> int:
        """Prompt tokens that may join so many decodes (at least one)."""
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
        self._joining.age += 1
        self._token.age += 1
        if prompt_tokens == 1:
            self._joining.observe(seconds - alone)
        else:
            joining = self._joining.seconds if self._joining.newest else 0.0
            self._token.observe((seconds - alone - joining) / (prompt_tokens - 1))
