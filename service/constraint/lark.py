"""Helpers for writing grammars in llguidance's Lark notation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.messages import MAX_GRAMMAR_CHARS
from service.formats.format import token_like

TokenIds = Callable[[str], int | None]
"""Returns the id of a text that is a single token, as a tokenizer's ``token_id`` does."""

SPACE = r"/[ \t\r\n]{0,8}/"
"""White space around tags, which counts as part of them. Bounded, so that a model cannot write it
forever."""

_ANYTHING = "/(?s:.*)/"


def literal(text: str) -> str:
    """Return a Lark string for exactly this text."""
    return json.dumps(text)


def pattern(regex: str) -> str:
    """Return a Lark regex that must match the whole text; anchors at its ends are allowed."""
    if not regex:
        return '""'
    # Lark ends a pattern at a bare slash or line end; an escaped slash is a slash in any regex.
    bare = re.sub(r"\\.|/", lambda found: "\\/" if found[0] == "/" else found[0], regex, flags=re.S)
    escaped = bare.replace("\\\n", "\\n").replace("\\\r", "\\r")
    return "/" + escaped.replace("\n", "\\n").replace("\r", "\\r") + "/"


def quoted(text: str) -> str:
    """Return a regex for exactly this text."""
    return "".join(map(_quoted, text))


def _quoted(char: str) -> str:
    if char.isalnum() or char in " <>_" or ord(char) > 0x7F:  # \< and \> have a special meaning
        return char
    return f"\\{char}" if char.isprintable() else f"\\x{ord(char):02x}"


class Tag(NamedTuple):
    """A delimiter of an output format. ``term`` spells it: ``head`` as text, then ``rest``, which
    begins with a special token that cannot occur in text."""

    text: str
    head: str
    rest: str

    @property
    def term(self) -> str:
        return f"{literal(self.head) if self.head else ''} {self.rest}".strip()

    @property
    def special(self) -> bool:
        """True if the tag begins with a special token, so that it cannot be mistaken for text."""
        return not self.head


def tag(text: str, token_ids: TokenIds) -> Tag:
    starts = [
        text.index(part)
        for part in (text, *token_like(text))
        if part and token_ids(part) is not None
    ]
    head = text[: min(starts, default=len(text))]
    return Tag(text, head, spelled(text[len(head) :], token_ids))


def spelled(text: str, token_ids: TokenIds) -> str:
    """Return a term for exactly this text, using special tokens where it has them; empty for no
    text."""
    tokens = [part for part in (text, *token_like(text)) if part and token_ids(part) is not None]
    if not tokens:
        return literal(text) if text else ""
    terms: list[str] = []
    for part in re.split(f"({'|'.join(map(re.escape, tokens))})", text):
        if part:
            token = token_ids(part) if part in tokens else None
            terms.append(literal(part) if token is None else f"<[{token}]>")
    return " ".join(terms)


class TooLargeError(Exception):
    """The grammar would be longer than a constraint may be."""


class Rules:
    """Accumulates a grammar's lines, with unique names. Raises TooLargeError if they get too
    long."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._count = 0
        self._chars = 0

    def check_room(self, chars: int) -> None:
        """Raise TooLargeError unless so many characters may be added."""
        if self._chars + chars > MAX_GRAMMAR_CHARS:
            raise TooLargeError

    def add(self, body: str, *, terminal: bool = False, option: str = "") -> str:
        """Add a rule or terminal and return its name."""
        self._count += 1
        return self.define(f"{'T' if terminal else 'r'}{self._count}{option}", body)

    def name(self) -> str:
        """Reserve a name for a recursive rule, to be passed to ``define``."""
        self._count += 1
        return f"r{self._count}"

    def define(self, name: str, body: str) -> str:
        self.check_room(len(body))
        self._chars += len(body)
        self._lines.append(f"{name}: {body}")
        return name.partition("[")[0]

    def text(self, *without: Tag) -> str:
        """Add a terminal for any text that contains none of these tags."""
        if not without:
            return self.add(_ANYTHING, terminal=True)
        tags = "|".join(quoted(tag.text) for tag in without)
        return self.add(f"{_ANYTHING} & ~/(?s:.*)({tags})(?s:.*)/", terminal=True)

    def text_to(self, *ends: Tag) -> str:
        """Add a rule for any text up to and including the first of these tags. Where some begin
        with special tokens, it ends at those and cannot contain the others."""
        if special := [end.term for end in ends if end.special]:
            return self.add(f"{self.text(*ends)} {either(special)}")
        heads = "|".join(quoted(end.head) for end in ends)
        to_head = self.add(f"/(?s:.*)({heads})/", option="[lazy]")
        rests = [end.rest for end in ends if end.rest]
        return self.add(f"{to_head}+ {either(rests)}") if rests else to_head

    def shaped_to(self, shape: str, end: Tag) -> str:
        """A text of the terminal ``shape``, in which ``end`` is not spelled out, and ``end``. One
        terminal has both: on its own, a text would be read as far as its shape allows, and take in
        the beginning of its end."""
        whole = f"({shape}) {literal(end.head)}" if end.head else shape
        return self.add(f"{self.add(whole, terminal=True)} {end.rest}")

    def source(self, start: str) -> str:
        return "\n".join(["%llguidance {}", f"start: {start}", *self._lines]) + "\n"


def either(terms: Sequence[str]) -> str:
    return f"({' | '.join(terms)})"
