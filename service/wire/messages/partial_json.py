"""Parses the complete part of JSON that may be cut off or invalid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from service.output.calls.json_text import JsonScanner

_ESCAPE = re.compile(
    r"""\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}"""
    r"""|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"""
)
_BARE_END = re.compile(r"[-+.0-9A-Za-z]+\Z")  # a number or literal
_LONGEST_ESCAPE = len(r"\ud83d\ude00")


class SoundJson:
    """Tracks the part of an object's JSON that remains valid whatever follows, as the text arrives:
    without anything after the first error, and without incomplete numbers, literals and escapes.
    ``text`` is that part so far; ``broken``: there was an error; ``has_member``: a member is
    complete."""

    def __init__(self) -> None:
        self.broken = False
        self.has_member = False
        self._scanner = JsonScanner()
        self._pieces: list[str] = []
        self._held = ""
        self._over = False  # the object has ended

    def push(self, text: str) -> str:
        """Return what has become valid with this text. Takes linear time."""
        if self.broken:
            return ""
        end = len(text) if not self._over else 0
        if not self._over and (over := self._scanner.scan(text)) is not None:
            self._over, end = True, over
        broken_at = self._scanner.broken_at if end == len(text) else end
        self._held += text if broken_at is None else text[:broken_at]
        self.broken = broken_at is not None
        sound = len(self._held) - self._scanner.unfinished
        if self.broken:
            sound = len(_BARE_END.sub("", self._held))
        at = self._held.find("\\")
        while 0 <= at < sound:
            escape = _ESCAPE.match(self._held, at)
            if escape is None:
                self.broken = self.broken or len(self._held) - at >= _LONGEST_ESCAPE
                sound = at
                break
            at = self._held.find("\\", escape.end())
        else:
            self.has_member = self._scanner.has_member
        piece, self._held = self._held[:sound], self._held[sound:]
        self._pieces.append(piece)
        if self.broken and self.has_member:  # or the error is in that very member
            self.has_member = bool(read_cut_object(self.text))
        return piece

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def whole(self) -> bool:
        """True if nothing is open or held back."""
        return not (self.broken or self._held or self._scanner.depth)


_CLOSERS = {"{": "}", "[": "]"}


def read_cut_object(text: str) -> dict[str, Any]:
    """Parse the object at the start of ``text`` with all complete members; an incomplete one and
    everything after it is dropped. Takes linear time."""
    cut = _last_cut(text)
    closers = "".join(_CLOSERS[bracket] for bracket in reversed(_open_brackets(text[:cut])))
    try:
        value = msgspec.json.decode(text[:cut] + closers)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _last_cut(text: str) -> int:
    """Return where the last complete member ends."""
    cut = 0
    brackets: list[str] = []
    before = ""  # the character before a string
    for index, character in _outside_strings(text):
        if character == ",":
            cut = index
        elif character in _CLOSERS:
            brackets.append(character)
            cut = index + 1
        elif character in "}]":
            if brackets:
                brackets.pop()
                cut = index + 1
        elif character == '"':
            if before == ":" or (brackets and brackets[-1] == "["):
                cut = index + 1
        elif character in " \t\n\r":
            if text[index - 1].isalnum():  # the end of a number or literal
                cut = index
            continue
        before = character
    return cut


def _open_brackets(text: str) -> list[str]:
    brackets: list[str] = []
    for _, character in _outside_strings(text):
        if character in _CLOSERS:
            brackets.append(character)
        elif character in "}]" and brackets:
            brackets.pop()
    return brackets


def _outside_strings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the characters outside strings, and the quote that ends a string."""
    in_string = escaped = False
    for index, character in enumerate(text):
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
            if in_string:
                continue
        elif character == '"':
            in_string = True
            continue
        yield index, character
