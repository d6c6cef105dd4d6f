"""Patterns of module names in a checkpoint's configuration, which may be hostile."""

from __future__ import annotations

import re

from engine.architecture.errors import ConfigError
from engine.architecture.fields import ConfigFields
from engine.architecture.schemes import Matches

# A pattern is matched with the name of every module. With few repetitions, none of them of a group,
# it takes milliseconds.
_MOST_CHARACTERS = 256
_MOST_REPETITIONS = 4
_REPETITION = re.compile(r"[*+{]")
_REFUSED = re.compile(r"\)\s*[*+{]|\\[1-9]|\(\?P=")


def name_pattern(fields: ConfigFields, text: str) -> Matches:
    """Return a function: does ``text`` match the beginning of a name? Raises ConfigError."""
    repetitions = len(_REPETITION.findall(text))
    if len(text) > _MOST_CHARACTERS or repetitions > _MOST_REPETITIONS or _REFUSED.search(text):
        shown = text if len(text) <= 80 else text[:77] + "..."
        raise ConfigError(
            f"{fields.source}: the pattern {shown!r} is not supported: at most {_MOST_CHARACTERS} "
            f"characters with {_MOST_REPETITIONS} repetitions, none of them of a group"
        )
    try:
        compiled = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{fields.source}: {text!r} is not a pattern: {error}") from error
    return lambda module: compiled.match(module) is not None
