"""Writing grammars in llguidance's Lark notation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from service.formats.format import token_like

TokenIds = Callable[[str], int | None]
"""The id of a text that is one token, as a tokenizer's ``token_id`` gives it."""

SPACE = r"/[ \t\r\n]{0,8}/"
"""White space around tags, which belongs to them. Bounded, so that nothing goes on forever."""

_ANYTHING = "/(?s:.*)/"


def literal(text: str) -> str:
    """Exactly this text."""
    return json.dumps(text)


def pattern(regex: str) -> str:
    """What the regex matches as a whole; anchors at its ends are welcome."""
    if not regex:
        return '""'
    # Lark ends a pattern at a bare slash or line end; an escaped slash is a slash in any regex.
    bare = re.sub(r"\\.|/", lambda found: "\\/" if found[0] == "/" else found[0], regex, flags=re.S)
    escaped = bare.replace("\\\n", "\\n").replace("\\\r", "\\r")
    return "/" + escaped.replace("\n", "\\n").replace("\r", "\\r") + "/"


def quoted(text: str) -> str:
    """A regex for exactly this text."""
    return "".join(map(_quoted, text))


def _quoted(char: str) -> str:
    if char.isalnum() or char in " <>_" or ord(char) > 0x7F:  # \< and \> mean something
        return char
    return f"\\{char}" if char.isprintable() else f"\\x{ord(char):02x}"


class Tag(NamedTuple):
    """A delimiter of an output format and the ``term`` that spells it: ``head``, which is text, and
    ``rest``, which begins with a token of its own, such as no text contains."""

    text: str
    head: str
    rest: str

    @property
    def term(self) -> str:
        return f"{literal(self.head) if self.head else ''} {self.rest}".strip()

    @property
    def special(self) -> bool:
        """Whether it cannot be mistaken for text from its beginning on."""
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
    """A term for exactly this text, its special tokens as such; empty for no text."""
    tokens = [part for part in (text, *token_like(text)) if part and token_ids(part) is not None]
    if not tokens:
        return literal(text) if text else ""
    terms: list[str] = []
    for part in re.split(f"({'|'.join(map(re.escape, tokens))})", text):
        if part:
            token = token_ids(part) if part in tokens else None
            terms.append(literal(part) if token is None else f"<[{token}]>")
    return " ".join(terms)


class Rules:
    """A grammar's lines, in the making. Names are made unique."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._count = 0

    def add(self, body: str, *, terminal: bool = False, option: str = "") -> str:
        """A rule's or a terminal's new name."""
        self._count += 1
        return self.define(f"{'T' if terminal else 'r'}{self._count}{option}", body)

    def name(self) -> str:
        """A name for a rule that refers to itself, to ``define``."""
        self._count += 1
        return f"r{self._count}"

    def define(self, name: str, body: str) -> str:
        self._lines.append(f"{name}: {body}")
        return name.partition("[")[0]

    def text(self, *without: Tag) -> str:
        """Any text in which none of these tags is spelled out."""
        if not without:
            return self.add(_ANYTHING, terminal=True)
        tags = "|".join(quoted(tag.text) for tag in without)
        return self.add(f"{_ANYTHING} & ~/(?s:.*)({tags})(?s:.*)/", terminal=True)

    def text_to(self, end: Tag) -> str:
        """Any text up to and with the first ``end``."""
        if end.special:
            return self.add(f"{self.text(end)} {end.term}")
        to_head = self.add(f"/(?s:.*){quoted(end.head)}/", option="[lazy]")
        return self.add(f"{to_head}+ {end.rest}") if end.rest else to_head

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
