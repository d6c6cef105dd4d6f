"""Rewrites a regex that is searched for in a text as one that matches the whole text.

Grammars match whole texts and do not support anchors, but a JSON schema's ``pattern`` may match any
part of a text: ``^a|b`` matches "ax" and "xb".
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

_ANYTHING = "(?s:.*)"
_BEGIN, _END = frozenset({"^", r"\A"}), frozenset({"$", r"\z"})
_QUANTIFIERS = frozenset("*+?{")
# In the syntax of Rust's regex crate: escapes, classes, openings of groups, single characters. An
# unclosed class extends to the end, so that matching takes linear time.
_TOKENS = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\\?\Z)|\(\?[a-zA-Z-]*[:)]|\(\?P?<\w+>|.",
    re.DOTALL,
)
_FLAGS = re.compile(r"\(\?([a-zA-Z-]*)[:)]")


def full_match_regex(search: str) -> str | None:
    """Return the rewritten regex; None if it has an anchor elsewhere than at the beginning or the
    end, or flags that change the meaning of anchors or white space. A regex with unbalanced
    parentheses is returned unchanged."""
    tokens = _TOKENS.findall(search)
    flags = _flags(tokens)
    if "x" in flags or ("m" in flags and not (_BEGIN | _END).isdisjoint(tokens)):
        return None
    pairs = _pairs(tokens)
    return search if pairs is None else _Rewriter(tokens, pairs).rewritten()


def is_verbose(regex: str) -> bool:
    """Whether the regex has a flag to ignore white space and comments."""
    return "x" in _flags(_TOKENS.findall(regex))


def _flags(tokens: list[str]) -> str:
    return "".join(found[1] for found in map(_FLAGS.fullmatch, tokens) if found)


def _is_flags(token: str) -> bool:
    return token.startswith("(?") and token.endswith(")")


def _pairs(tokens: list[str]) -> dict[int, int] | None:
    """Return the position of the other parenthesis for each; None if they are unbalanced."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for place, part in enumerate(tokens):
        if part.startswith("(") and not _is_flags(part):
            opened.append(place)
        elif part == ")":
            if not opened:
                return None
            start = opened.pop()
            pairs[start], pairs[place] = place, start
    return None if opened else pairs


class _Edge(NamedTuple):
    """The beginnings (or ends) of the alternatives in [start, end), which are those of the whole
    regex. ``is_open``: any text may come before (or after) them, because there was no anchor."""

    start: int
    end: int
    is_open: bool


class _Rewriter:
    """Removes anchors, also those inside groups, and adds ``.*`` where there was no anchor."""

    def __init__(self, tokens: list[str], pairs: dict[int, int]) -> None:
        self._tokens = tokens
        self._pairs = pairs
        self._before = [""] * (len(tokens) + 1)  # what to insert before each token
        self._begins = _running_count(tokens, _BEGIN)
        self._ends = _running_count(tokens, _END)

    def rewritten(self) -> str | None:
        for step in (self._begin, self._end):
            edges = [_Edge(0, len(self._tokens), is_open=True)]
            while edges:
                start, end, is_open = edges.pop()
                for alternative in self._alternatives(start, end):
                    inner = step(*alternative, is_open)
                    if inner is not None:
                        edges.append(inner)
        if not (_BEGIN | _END).isdisjoint(self._tokens):
            return None
        return "".join(itertools.chain(*zip(self._before, [*self._tokens, ""], strict=True)))

    def _alternatives(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        place = start
        while place < end:
            if self._tokens[place] == "|":
                yield start, place
                start = place + 1
            place = max(place, self._pairs.get(place, 0)) + 1
        yield start, end

    def _begin(self, start: int, end: int, is_open: bool) -> _Edge | None:
        """Open or anchor the beginning of one alternative. If it begins with a group that has
        anchors, return that group's edge instead."""
        place = start
        while place < end and (self._tokens[place] in _BEGIN or _is_flags(self._tokens[place])):
            if self._tokens[place] in _BEGIN:
                self._tokens[place] = ""
                is_open = False
            place += 1
        close = self._pairs.get(place, -1)
        is_repeated = close + 1 < end and self._tokens[close + 1] in _QUANTIFIERS
        if close > place and not is_repeated and self._begins[close] > self._begins[place]:
            return _Edge(place + 1, close, is_open)
        if is_open:
            self._before[place] += _ANYTHING
        return None

    def _end(self, start: int, end: int, is_open: bool) -> _Edge | None:
        """Do the same for the end of one alternative."""
        place = end
        while place > start and (
            self._tokens[place - 1] in _END or _is_flags(self._tokens[place - 1])
        ):
            place -= 1
            if self._tokens[place] in _END:
                self._tokens[place] = ""
                is_open = False
        opening = self._pairs.get(place - 1, place)
        if start <= opening < place - 1 and self._ends[place] > self._ends[opening]:
            return _Edge(opening + 1, place - 1, is_open)
        if is_open:
            self._before[place] += _ANYTHING
        return None


def _running_count(tokens: list[str], wanted: frozenset[str]) -> list[int]:
    """Return how many of the tokens before each position are wanted."""
    return [0, *itertools.accumulate(token in wanted for token in tokens)]
