"""How many examples a property is tested with."""

from __future__ import annotations

from hypothesis import settings

_USUAL = 100  # hypothesis's own default


def examples(number: int) -> int:
    """Return ``number``, or the fifth of it that `make quick` takes (see ``tests/conftest.py``)."""
    return max(1, number * settings().max_examples // _USUAL)
