"""JSON as models write it, read while it arrives."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Any

from service.generation.calls.source import Emit, NotACallError, Source, Waiting

_SCALAR = re.compile(r"[^\s,:\[\]{}\"]+")


class JsonScanner:
    """Finds where a JSON value that began with a brace or bracket ends, string-aware.

    ``raw_controls``: offsets, in the text last scanned, of control characters that stand raw in a
    string. Models write them; JSON, and every client's parser, forbids them.
    """

    __slots__ = ("_depth", "_escaped", "_in_string", "raw_controls")

    def __init__(self) -> None:
        self.raw_controls: list[int] = []
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def scan(self, text: str) -> int | None:
        """The offset just after the value's last character, None if it goes on."""
        self.raw_controls = []
        for offset, char in enumerate(text):
            if self._in_string:
                if char < " ":
                    self.raw_controls.append(offset)
                self._inside_string(char)
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return offset + 1
        return None

    def _inside_string(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = False


def read_container(source: Source, emit: Emit) -> Waiting:
    """Emit the object or array that begins here, with the control characters in its strings
    escaped. Raises EndOfTextError, with all there was emitted."""
    scanner = JsonScanner()
    while True:
        rest = source.rest
        end = scanner.scan(rest)
        text = source.take(len(rest) if end is None else end)
        if text:
            emit(_escaped(text, scanner.raw_controls))
        if end is not None:
            return
        yield from source.more()


def read_string(source: Source) -> Generator[None, None, str]:
    """The string that begins here. Raises NotACallError where it is none."""
    if (yield from source.peek()) != '"':
        raise NotACallError
    source.take(1)
    pieces: list[str] = []
    while (yield from source.until('"', "\\", emit=pieces.append)) == "\\":
        pieces.append("\\" + (yield from source.peek()))
        source.take(len(pieces[-1]) - 1)
    text = loads(f'"{"".join(pieces)}"')
    if not isinstance(text, str) or not is_unicode(text):
        raise NotACallError
    return text


def read_value(source: Source) -> Generator[None, None, Any]:
    """The value that begins here. Raises NotACallError where it is none."""
    first = yield from source.peek()
    if first == '"':
        return (yield from read_string(source))
    pieces: list[str] = []
    if first in ("{", "["):
        yield from read_container(source, pieces.append)
    else:
        yield from source.run(_SCALAR, pieces.append)
    value = loads("".join(pieces))
    if value is INVALID:
        raise NotACallError
    return value


INVALID = object()
"""What ``loads`` gives for text that is no JSON."""


def loads(text: str) -> Any:
    """Lenient as to control characters in strings."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return INVALID


def dumps(value: Any) -> str:
    """As models write it, but always text that can be sent."""
    text = json.dumps(value, ensure_ascii=False)
    return text if is_unicode(text) else json.dumps(value)


def string_inside(text: str) -> str:
    """``text`` as it stands between a JSON string's quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def is_unicode(text: str) -> bool:
    """Whether it can be sent. A model may write an escape of half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _escaped(text: str, offsets: list[int]) -> str:
    """``text`` with the control characters at ``offsets`` written as JSON wants them."""
    if not offsets:
        return text
    pieces, start = [], 0
    for offset in offsets:
        pieces += [text[start:offset], json.dumps(text[offset])[1:-1]]
        start = offset + 1
    return "".join(pieces) + text[start:]
