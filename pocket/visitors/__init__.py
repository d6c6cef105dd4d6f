"""What visitors type, written by hand, in words that the generator never produces.

Nothing in here is trained on: a test holds every question against the generator's phrasings. Each
row is a gate of its own.
"""

from typing import Final

from pocket.visitors import chat, numbers, requests, words
from pocket.visitors.visit import Visit

ROWS: Final[dict[str, tuple[Visit, ...]]] = {
    "greetings": chat.GREETINGS,
    "introductions": chat.INTRODUCTIONS,
    "recalls a name": chat.RECALLS_NAMES,
    "recalls other words": chat.RECALLS_WORDS,
    "jokes": words.JOKES,
    "poems and haiku": words.POEMS,
    "compares numbers": numbers.COMPARES,
    "sorts numbers": numbers.SORTS,
    "days and months": numbers.CALENDAR,
    "colours": words.COLOURS,
    "counting": numbers.COUNTS,
    "units": numbers.UNITS,
    "opposites": words.OPPOSITES,
    "rhymes": words.RHYMES,
    "lists": words.LISTS,
    "Quire and itself": words.QUIRE,
    "declines": words.REFUSALS,
    "one tool value": requests.ONE_VALUE,
    "several tool values": requests.SEVERAL_VALUES,
}
"""Visits by row."""

MUST: Final = 0.95
"""Share of right answers that each row must have."""
