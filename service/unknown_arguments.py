"""Says which arguments of a command are unknown, and which flags may have been meant."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Sequence

_LEAST_LIKENESS = 0.75
_FLAG = re.compile(r"--|-\w$")  # not -text, which may be a secret


def unknown_arguments(parser: argparse.ArgumentParser, rest: Sequence[str]) -> str:
    """Return a sentence. ``rest``: what the parser did not take. The values of flags, which may be
    secrets, are not in it."""
    flags = [text.partition("=")[0] for text in rest if _FLAG.match(text)]
    known = [flag for action in parser._actions for flag in action.option_strings]  # no public list
    nearest = [
        near
        for flag in flags
        for near in difflib.get_close_matches(flag, known, n=1, cutoff=_LEAST_LIKENESS)
    ]
    shown = flags or [text for text in rest if not text.startswith("-")]
    said = (
        f"unknown arguments: {' '.join(shown)}"
        if shown
        else "unknown arguments (not shown: they may be secrets)"
    )
    return f"{said} (nearest: {', '.join(dict.fromkeys(nearest))})" if nearest else said
