"""A simulated model's answers to prompts: rules read from JSON lines. Pure.

Each line is an object; blank lines and lines that begin with # are skipped. The first rule whose
conditions match the prompt's text gives the reply:

- ``when``: a regex that must be found in the prompt; ``unless``: one that must not;
- ``reply``: a text, or a list of exact token pieces: strings that are encoded separately, and token
  ids. Or ``count``, a regex, with ``replies``: the number of its matches selects one of them, and
  beyond the last the rule does not match;
- ``end``: false if words should follow the reply until ``max_tokens`` (default: true, it ends).

``{{name}}`` in a text is replaced by what the named group of ``when`` matched. Patterns are
Python's, with ^ and $ matching at line ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.architecture.errors import ModelError

MAX_SCRIPT_BYTES = 16 << 20
MAX_RULES = 10_000

_PLACEHOLDER = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_]*)\}\}")

Pieces = tuple[str | int, ...]


class ScriptError(ModelError):
    """The script cannot be used; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Reply:
    """``pieces``: texts to encode separately, and token ids. ``ends``: nothing follows them.
    ``line``: its line in the script."""

    pieces: Pieces
    ends: bool
    line: int


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    when: str | None = None
    unless: str | None = None
    count: str | None = None
    reply: str | Pieces | None = None
    replies: list[str | Pieces] | None = None
    end: bool = True


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the script, its patterns compiled."""

    line: int
    when: re.Pattern[str] | None
    unless: re.Pattern[str] | None
    count: re.Pattern[str] | None
    replies: tuple[Pieces, ...]
    ends: bool

    def answer(self, prompt: str) -> Reply | None:
        """Return the reply; None if the rule does not match."""
        found = self.when.search(prompt) if self.when else None
        if self.when and found is None:
            return None
        if self.unless and self.unless.search(prompt):
            return None
        place = sum(1 for _ in self.count.finditer(prompt)) if self.count else 0
        if place >= len(self.replies):
            return None
        pieces = self.replies[place]
        if found is not None and found.re.groupindex:
            pieces = _filled(pieces, found)
        return Reply(pieces, self.ends, self.line)


@dataclass(frozen=True, slots=True)
class Script:
    rules: tuple[Rule, ...]

    def answer(self, prompt: str) -> Reply | None:
        """Return the reply of the first rule that matches; None if there is none."""
        for rule in self.rules:
            reply = rule.answer(prompt)
            if reply is not None:
                return reply
        return None


def read_script(path: Path) -> Script:
    """Raises ScriptError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SCRIPT_BYTES + 1)
    except OSError as error:
        raise ScriptError(f"the script {path} cannot be read: {error.strerror}") from error
    if len(data) > MAX_SCRIPT_BYTES:
        raise ScriptError(f"the script {path} is larger than {MAX_SCRIPT_BYTES} bytes")
    return parse_script(data, str(path))


def parse_script(data: bytes, source: str) -> Script:
    """``source`` names the script in errors. Raises ScriptError."""
    rules = []
    for number, line in enumerate(data.split(b"\n"), 1):
        text = line.strip()
        if not text or text.startswith(b"#"):
            continue
        try:
            rules.append(_rule(number, msgspec.json.decode(text, type=_Line)))
        except (ValueError, RecursionError) as error:
            raise ScriptError(f"{source}, line {number}: {error}") from error
        if len(rules) > MAX_RULES:
            raise ScriptError(f"{source}, line {number}: more than {MAX_RULES} rules")
    if not rules:
        raise ScriptError(f"{source} has no rules")
    return Script(tuple(rules))


def _rule(number: int, line: _Line) -> Rule:
    if (line.reply is None) == (line.replies is None):
        raise ValueError("give either `reply` or `replies`")
    if (line.count is None) != (line.replies is None):
        raise ValueError("`count` and `replies` go together")
    replies = [line.reply] if line.reply is not None else (line.replies or [])
    if not replies:
        raise ValueError("`replies` is empty")
    rule = Rule(
        line=number,
        when=_pattern("when", line.when),
        unless=_pattern("unless", line.unless),
        count=_pattern("count", line.count),
        replies=tuple((reply,) if isinstance(reply, str) else reply for reply in replies),
        ends=line.end,
    )
    if rule.when and rule.when.groupindex:
        for pieces in rule.replies:
            _check_placeholders(pieces, rule.when)
    return rule


def _pattern(field: str, text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text, re.MULTILINE)
    except (re.error, OverflowError) as error:
        raise ValueError(f"`{field}` is not a regex: {error}") from error


def _check_placeholders(pieces: Pieces, when: re.Pattern[str]) -> None:
    for piece in pieces:
        for name in _PLACEHOLDER.findall(piece) if isinstance(piece, str) else ():
            if name not in when.groupindex:
                raise ValueError(f"`when` has no group {name!r} for {{{{{name}}}}}")


def _filled(pieces: Pieces, found: re.Match[str]) -> Pieces:
    def value(place: re.Match[str]) -> str:
        return found[place[1]] or ""

    return tuple(
        _PLACEHOLDER.sub(value, piece) if isinstance(piece, str) else piece for piece in pieces
    )
