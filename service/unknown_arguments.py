"""Says which arguments of a command are unknown, and which flags may have been meant."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

_LEAST_LIKENESS = 0.75
_OTHER_DASHES = ("\u2013", "\u2014", "\u2212")  # what editors and web pages make of hyphens
_DASHES = ("-", *_OTHER_DASHES)
_FLAG = re.compile(r"--|-\w$")  # not -text, which may be a secret


def unknown_arguments(
    parser: argparse.ArgumentParser,
    namespace: argparse.Namespace,
    rest: Sequence[str],
    given: Sequence[str],
) -> str:
    """Return a sentence, empty if all arguments are known. ``namespace``: what the parser took; it
    takes a flag with other dashes for a positional. ``rest``: what it did not take. ``given``: the
    whole command line.

    The values of flags, which may be secrets, are not in the sentence, nor is other text after the
    first flag."""
    known = [flag for action in parser._actions for flag in action.option_strings]  # no public list
    unknown = [*_flags_among_positionals(parser, namespace), *rest]
    if not unknown:
        return ""
    nearest = dict.fromkeys(near for text in unknown for near in _nearest(text, known))
    shown = list(_shown(unknown, known, given))
    notes = [
        *(() if shown else ("not shown: they may be secrets",)),
        *((f"nearest: {', '.join(nearest)}",) if nearest else ()),
    ]
    said = f"unknown arguments: {' '.join(shown)}" if shown else "unknown arguments"
    return f"{said} ({'; '.join(notes)})" if notes else said


def _flags_among_positionals(
    parser: argparse.ArgumentParser, namespace: argparse.Namespace
) -> Iterator[str]:
    for action in parser._actions:
        value = getattr(namespace, action.dest, None)
        if action.option_strings or not isinstance(value, str):
            continue
        if value.startswith(_OTHER_DASHES):
            yield value


def _shown(unknown: Sequence[str], known: Sequence[str], given: Sequence[str]) -> Iterator[str]:
    first = set(takewhile(lambda text: not text.startswith(_DASHES), given))
    for text in unknown:
        if text in first:
            yield text
        elif text.startswith(_DASHES):
            name = text.partition("=")[0]
            if _FLAG.match(name) or _with_hyphens(name) in known:
                yield name


def _nearest(text: str, known: Sequence[str]) -> list[str]:
    if not text.startswith(_DASHES):
        return []
    flag = _with_hyphens(text.partition("=")[0])
    return difflib.get_close_matches(flag, known, n=1, cutoff=_LEAST_LIKENESS)


def _with_hyphens(name: str) -> str:
    """Return the flag that may be meant: ``-api-key`` and the same with a dash are --api-key."""
    return name if _FLAG.match(name) else "--" + name.lstrip("".join(_DASHES))
