"""Numbers in sentences."""

from __future__ import annotations


def plural(number: float, noun: str) -> str:
    """Return ``1 sequence`` or ``1,200 sequences``."""
    return f"{number:,.0f} {noun}{'' if round(number) == 1 else 's'}"


def are(number: int, noun: str = "") -> str:
    """Return ``1 is`` or ``1,200 are``; with a noun, ``1 sequence is`` or ``1,200 sequences
    are``."""
    return f"{plural(number, noun) if noun else f'{number:,}'} {'is' if number == 1 else 'are'}"
