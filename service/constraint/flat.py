"""Converts a Lark grammar without recursion to a single regular expression.

Models whose calls are JSON write a custom tool's text as a JSON string, whose content can be
constrained by a regex but not by a grammar, so the grammar is flattened. Rules that refer to
themselves are rejected, as is every construct without an obvious equivalent as a regex.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from engine.messages import MAX_GRAMMAR_CHARS
from service.constraint.lark import quoted

MAX_REGEX_CHARS = 64 * 1024
_MAX_DEPTH = 64  # of parentheses, and of rules within rules

_COMMON = {
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "WS": r"[ \t\f\r\n]+",
    "WS_INLINE": r"[ \t]+",
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[0-9a-fA-F]",
    "INT": "[0-9]+",
    "SIGNED_INT": "[+-]?[0-9]+",
    "LETTER": "[A-Za-z]",
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[_A-Za-z][_A-Za-z0-9]*",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\.)*"',
}

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|\#[^\n]*)
    |(?P<import>%import\s+common\.(?P<common>\w+)(?:[ \t]*->[ \t]*(?P<alias>\w+))?)
    |(?P<drop>->[ \t]*\w+)
    |(?P<range>"[^"\\]"\s*\.\.\s*"[^"\\]")
    |(?P<string>"(?:\\.|[^"\\\n])*"i?)
    |(?P<regex>/(?![/*])(?:\\.|[^/\\\n])+/[a-z]*)
    |(?P<rule>[?!]{0,2}\w+(?=\s*:))
    |(?P<repeat>[*+?]|\{[\s\d,]{1,64}\}|~\s*\d+(?:\s*\.\.\s*\d+)?)
    |(?P<bracket>[()|\[\]:])
    |(?P<name>!?\w+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


class CannotFlattenError(ValueError):
    """The grammar, or part of it, cannot be written as a regular expression."""


class _Token(NamedTuple):
    kind: str
    text: str


def flat_regex(grammar: str) -> str:
    """Return a regex that matches exactly the grammar's texts. Raises CannotFlattenError."""
    if len(grammar) > MAX_GRAMMAR_CHARS // 4:
        raise CannotFlattenError("it is too large")
    return _Flattener(_definitions(grammar)).rule("start")


def _definitions(grammar: str) -> dict[str, list[_Token]]:
    """Return the tokens of each rule and terminal, by name."""
    tokens = []
    definitions: dict[str, list[_Token]] = {}
    for found in _TOKEN.finditer(grammar):
        kind = found.lastgroup or ""
        if found["import"] is not None:
            name = found["common"]
            if name not in _COMMON:
                raise CannotFlattenError(f"'%import common.{name}' is not supported")
            definitions[found["alias"] or name] = [_Token("made", _COMMON[name])]
        elif found["other"] is not None:
            raise CannotFlattenError(
                f"'{grammar[found.start() : found.start() + 20]}' cannot be used"
            )
        elif kind not in ("space", "drop"):
            tokens.append(_Token(kind, found[0]))
    current: list[_Token] | None = None
    for place, token in enumerate(tokens):
        if place + 1 < len(tokens) and tokens[place + 1] == ("bracket", ":"):
            if token.kind != "rule":
                raise CannotFlattenError(f"'{token.text}:' does not start a rule")
            current = definitions[token.text.lstrip("?!")] = []
        elif token == ("bracket", ":"):
            continue
        elif current is None:
            raise CannotFlattenError(f"'{token.text[:20]}' is outside a rule")
        else:
            current.append(token)
    return definitions


class _Flattener:
    """Converts definitions by recursive descent; each rule is converted once."""

    def __init__(self, definitions: dict[str, list[_Token]]) -> None:
        self._definitions = definitions
        self._written: dict[str, str] = {}
        self._open: set[str] = set()
        self._tokens: list[_Token] = []
        self._place = 0
        self._depth = 0

    def rule(self, name: str) -> str:
        if name in self._written:
            return self._written[name]
        if name not in self._definitions:
            raise CannotFlattenError(f"there is no rule '{name[:64]}'")
        if name in self._open:
            raise CannotFlattenError(f"the rule '{name[:64]}' refers to itself")
        self._open.add(name)
        outside = self._tokens, self._place
        self._tokens, self._place = self._definitions[name], 0
        regex = self._alternatives()
        if self._place < len(self._tokens):
            raise CannotFlattenError(f"'{self._tokens[self._place].text}' is unexpected")
        self._tokens, self._place = outside
        self._open.discard(name)
        if len(regex) > MAX_REGEX_CHARS:
            raise CannotFlattenError(f"the rule '{name[:64]}' is too large")
        self._written[name] = regex
        return regex

    def _next(self) -> _Token | None:
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def _alternatives(self) -> str:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise CannotFlattenError(f"it is nested more than {_MAX_DEPTH} levels deep")
        written = _Pieces()
        written.add(self._sequence())
        while self._next() == ("bracket", "|"):
            self._place += 1
            written.add("|")
            written.add(self._sequence())
        self._depth -= 1
        return f"(?:{written.text})"

    def _sequence(self) -> str:
        written = _Pieces()
        while (token := self._next()) is not None and token.text not in ("|", ")", "]"):
            part = self._item(token)
            repeats = []
            while (following := self._next()) is not None and following.kind == "repeat":
                self._place += 1
                repeats.append(f"{_count(following.text)})")
            written.add("(?:" * len(repeats))
            written.add(part)
            written.add("".join(repeats))
        return written.text

    def _item(self, token: _Token) -> str:
        self._place += 1
        match token.kind:
            case "made":
                return f"(?:{token.text})"
            case "name":
                return self.rule(token.text)
            case "string":
                return _string(token.text)
            case "regex":
                return _regex(token.text)
            case "range":
                return f"[{quoted(token.text[1])}-{quoted(token.text[-2])}]"
        if token.text not in ("(", "["):
            raise CannotFlattenError(f"'{token.text}' is out of place")
        inside = self._alternatives()
        closing = ")" if token.text == "(" else "]"
        if self._next() != ("bracket", closing):
            raise CannotFlattenError(f"'{closing}' is missing")
        self._place += 1
        return inside if closing == ")" else f"{inside}?"


class _Pieces:
    """Accumulates a regex up to the size limit."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0

    def add(self, piece: str) -> None:
        self._size += len(piece)
        if self._size > MAX_REGEX_CHARS:
            raise CannotFlattenError("the grammar is too large")
        self._pieces.append(piece)

    @property
    def text(self) -> str:
        return "".join(self._pieces)


def _count(repeat: str) -> str:
    """Convert a Lark repetition to a regex repetition."""
    if repeat in ("*", "+", "?"):
        return repeat
    bounds = re.sub(r"[\s{}~]", "", repeat).replace("..", ",")
    if not re.fullmatch(r"\d*,?\d*", bounds):
        raise CannotFlattenError(f"'{repeat[:40]}' is not a repeat count")
    return "{" + (f"0{bounds}" if bounds.startswith(",") else bounds) + "}"


def _string(source: str) -> str:
    try:
        text: str = json.loads(source.removesuffix("i"))
    except json.JSONDecodeError:
        raise CannotFlattenError(f"{source[:40]} is not a string") from None
    return f"(?i:{quoted(text)})" if source.endswith("i") else quoted(text)


def _regex(source: str) -> str:
    end = source.rindex("/")
    body, flags = source[1:end].replace("\\/", "/"), source[end + 1 :]
    if not set(flags) <= {"i", "s", "m", "x", "u"}:
        raise CannotFlattenError(f"{source[:40]} has unknown flags")
    flags = flags.replace("u", "")
    return f"(?{flags}:{body})" if flags else f"(?:{body})"
