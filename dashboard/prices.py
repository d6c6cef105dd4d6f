"""What tokens cost, where the operator has set prices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

PRICES_VARIABLE = "QUIRE_DASHBOARD_PRICES"
_EXAMPLE = "input=0.50 cached=0.05 output=1.50"
_PER_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """Per million tokens, in the operator's currency. ``cached``: of prompt tokens that came from
    the prefix cache, ``input``: of the others."""

    input: float
    cached: float
    output: float

    def cost(self, *, prompt_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        computed = prompt_tokens - cached_tokens
        spent = computed * self.input + cached_tokens * self.cached + output_tokens * self.output
        return spent / _PER_TOKENS

    def __str__(self) -> str:
        return f"input {self.input:g}, cached {self.cached:g}, output {self.output:g}"


def prices(environment: Mapping[str, str]) -> Prices | None:
    """Return the prices in ``QUIRE_DASHBOARD_PRICES``, None if it is not set. Without ``cached``,
    cached tokens cost as much as others.

    Raises ValueError.
    """
    text = environment.get(PRICES_VARIABLE, "").replace(",", " ").split()
    if not text:
        return None
    found: dict[str, float] = {}
    for part in text:
        name, _, value = part.partition("=")
        if name not in ("input", "cached", "output") or not _is_price(value):
            raise ValueError(
                f"{PRICES_VARIABLE} has {part!r}; set prices per million tokens, such as "
                f"{_EXAMPLE!r}"
            )
        found[name] = float(value)
    if not {"input", "output"} <= found.keys():
        raise ValueError(f"{PRICES_VARIABLE} needs 'input' and 'output', such as {_EXAMPLE!r}")
    return Prices(found["input"], found.get("cached", found["input"]), found["output"])


def _is_price(text: str) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    return math.isfinite(value) and value >= 0
