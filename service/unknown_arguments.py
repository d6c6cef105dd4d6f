"""Says which arguments of a command are unknown, and which flags may have been meant."""

from __future__ import annotations

import argparse
import difflib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import dropwhile, takewhile
from typing import Any

_LEAST_LIKENESS = 0.75
_MINUS_SIGN = "\u2212"
_FLAG = re.compile(r"--|-\w$")  # not -text, which may be a secret


class CommandParser(argparse.ArgumentParser):
    """A parser whose error about an unknown command does not print it: after a misspelt flag, the
    flag's value is taken for the command, and may be a secret."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        commands = action.choices
        if action.option_strings or not isinstance(commands, dict) or value in commands:
            super()._check_value(action, value)
            return
        near = _nearest(value, list(commands))
        said = f"unknown{f' (nearest: {near[0]})' if near else ''}; it must be one of "
        raise argparse.ArgumentError(action, f"{said}{', '.join(commands)}; flags follow it")


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
    nearest = dict.fromkeys(near for text in unknown for near in _nearest_flag(text, known))
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
        if _has_dash(value) and not value.startswith("-"):  # "-" is one only after "--"
            yield value


def _shown(unknown: Sequence[str], known: Sequence[str], given: Sequence[str]) -> Iterator[str]:
    first = set(takewhile(lambda text: not _has_dash(text), given))
    for text in unknown:
        if text in first:
            yield text
        elif _has_dash(text):
            name = text.partition("=")[0]
            if _FLAG.match(name) or _with_hyphens(name) in known:
                yield name


def _nearest_flag(text: str, known: Sequence[str]) -> list[str]:
    return _nearest(_with_hyphens(text.partition("=")[0]), known) if _has_dash(text) else []


def _nearest(text: str, known: Sequence[str]) -> list[str]:
    return difflib.get_close_matches(text, known, n=1, cutoff=_LEAST_LIKENESS)


def _with_hyphens(name: str) -> str:
    """Return the flag that may be meant: ``-api-key`` and the same with a dash are --api-key."""
    return name if _FLAG.match(name) else "--" + "".join(dropwhile(_is_dash, name))


def _has_dash(text: str) -> bool:
    """Whether it begins with a hyphen, or with what editors and web pages make of one."""
    return _is_dash(text[:1])


def _is_dash(character: str) -> bool:
    return character != "" and (character == _MINUS_SIGN or unicodedata.category(character) == "Pd")
