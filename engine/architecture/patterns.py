"""Patterns of module names in a checkpoint's configuration, which may be hostile."""

from __future__ import annotations

import re
from math import prod

from engine.architecture.errors import ConfigError
from engine.architecture.fields import ConfigFields
from engine.architecture.schemes import Matches

# A pattern is matched with the name of every module. What may take longer than a moment is refused,
# as Python tries all ways in which a pattern could match: their number is exponential in the
# optional parts and alternatives, and a power of a name's length in the repetitions.
_MOST_CHARACTERS = 256
_MOST_REPETITIONS = 4
_MOST_CHOICES = (4096, 4096, 4096, 512, 16)  # by the number of repetitions
_LONGEST_NAME = 256
_REPETITION = re.compile(r"[*+{]")
_OPTIONAL = re.compile(r"(?<!\()\?|(?<=\\\()\?")  # and not the ? that follows a parenthesis
_REFUSED = re.compile(r"\)\s*[*+{]|\\[1-9]|\(\?P=|\(\?[a-zA-Z]*x")  # x: of comments


def name_pattern(fields: ConfigFields, text: str) -> Matches:
    """Return a function: does ``text`` match the beginning of a name? It raises ConfigError for a
    name that is too long. Raises ConfigError."""
    shown = text if len(text) <= 80 else text[:77] + "..."
    repetitions = len(_REPETITION.findall(text))
    if len(text) > _MOST_CHARACTERS or repetitions > _MOST_REPETITIONS or _REFUSED.search(text):
        raise ConfigError(
            f"{fields.source}: the pattern {shown!r} is not supported: at most {_MOST_CHARACTERS} "
            f"characters with {_MOST_REPETITIONS} repetitions, none of them of a group"
        )
    if _choices(text) > _MOST_CHOICES[repetitions]:
        raise ConfigError(
            f"{fields.source}: the pattern {shown!r} is not supported: its optional parts and "
            f"alternatives make over {_MOST_CHOICES[repetitions]} combinations"
        )
    try:
        compiled = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{fields.source}: {text!r} is not a pattern: {error}") from error

    def matches(module: str) -> bool:
        if len(module) > _LONGEST_NAME:
            raise ConfigError(
                f"{fields.source}: the pattern {shown!r} cannot be matched with names of over "
                f"{_LONGEST_NAME} characters, such as {module[:40]!r}..."
            )
        return compiled.match(module) is not None

    return matches


def _choices(text: str) -> int:
    """Return how many combinations optional parts and alternatives make, or more."""
    alternatives = prod(part.count("|") + 1 for part in re.split(r"[()]", text))
    return alternatives << len(_OPTIONAL.findall(text))
