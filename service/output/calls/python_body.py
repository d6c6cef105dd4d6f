"""Parses calls written as Python: ``[get_weather(city="Oslo", days=3), ping()]``."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator
from typing import Any

from service.formats.format import PythonBody
from service.output.calls.coercion import python_to_json
from service.output.calls.json_text import dumps, is_unicode, string_inside
from service.output.calls.keys import OwnNames
from service.output.calls.sink import MAX_NAME_CHARS, CallSink, ToolSchemas
from service.output.calls.source import (
    Emit,
    EndOfTextError,
    NotACallError,
    Source,
    Stop,
    Waiting,
)

_Ends = Callable[[int], Generator[None, None, bool]]

_IDENTIFIER = re.compile(r"[\w.-]+")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a"}
_OCTAL = re.compile(r"([0-7]{1,3})")
# By the first character of an escape: what is the code of a character, its base, and how many
# characters may follow the first.
_CODES = {
    **dict.fromkeys("01234567", (_OCTAL, 8, 2)),
    "x": (re.compile(r"x([0-9a-fA-F]{2})"), 16, 2),
    "u": (re.compile(r"u([0-9a-fA-F]{4})"), 16, 4),
    "U": (re.compile(r"U([0-9a-fA-F]{8})"), 16, 8),
}
_RAW = ("r", "R")
_MOST_NAMES = 64
_CLOSERS = {"(": ")", "[": "]", "{": "}"}


def read_python(
    source: Source,
    sink: CallSink,
    body: PythonBody,
    tools: ToolSchemas,
    *,
    listed: bool = False,
) -> Waiting:
    """``listed``: the opening bracket has been consumed."""
    if body.brackets and not listed:
        yield from source.space()
        if not (yield from source.accept("[")):
            raise NotACallError
    made = False
    while True:
        yield from source.space()
        if body.brackets and (yield from source.accept("]")):
            if not made:
                raise NotACallError
            return
        if made and source.stop_tags and (yield from source.at(*source.stop_tags)) is not None:
            return
        yield from _Call(source, sink, body, tools).read()
        made = True
        yield from source.space()
        while (yield from source.accept(",", ")")):  # the model wrote the bracket twice
            yield from source.space()


def _word(source: Source) -> Generator[None, None, str]:
    pieces: list[str] = []
    yield from source.run(_IDENTIFIER, pieces.append)
    word = "".join(pieces)
    if not word or len(word) > MAX_NAME_CHARS:
        raise NotACallError
    return word


class _BrokenError(Exception):
    """The arguments are not valid Python."""


class _Call:
    """Reads one call argument by argument."""

    def __init__(
        self, source: Source, sink: CallSink, body: PythonBody, tools: ToolSchemas
    ) -> None:
        self._source = source
        self._sink = sink
        self._body = body
        self._tools = tools
        names = sorted(tools)[:_MOST_NAMES]
        between = ("), ", "),", ")\n")
        # Where another call begins. Inside a string, these show that its closing quote is missing.
        self._next_calls = tuple(f"{comma}{name}(" for name in names for comma in between)
        self._next_names = tuple(f"{name}(" for name in names)
        self._own = OwnNames(())

    def read(self) -> Waiting:
        source, sink = self._source, self._sink
        name = yield from _word(source)
        if not (yield from source.accept("(")):
            raise NotACallError
        sink.begin(name)
        try:
            yield from self._arguments(name)
        except _BrokenError:
            yield from self._skip()
            sink.end(whole=False)
        else:
            sink.end()

    def _arguments(self, name: str) -> Waiting:
        source, sink = self._source, self._sink
        positions = _positions(self._tools.get(name))
        self._own = OwnNames(positions)
        opening = "{"
        while True:
            yield from source.space()
            if (yield from source.accept(")")):
                break
            names = self._next_names
            if names and (yield from source.at(*names)) is not None:
                raise _BrokenError
            key, named = yield from _keyword(source, positions, self._own)
            sink.arguments(f"{opening}{dumps(key)}: ")
            opening = ", "
            yield from source.space()
            yield from self._value(named=named)
            yield from source.space()
            if not (yield from source.accept(",")) and (yield from source.peek()) != ")":
                raise _BrokenError
        sink.arguments("{}" if opening == "{" else "}")

    def _skip(self) -> Waiting:
        """Emit everything up to the format's own tags or another call."""
        source = self._source
        ends = (*self._next_names, *source.stop_tags)
        while True:
            before: list[str] = []

            def emit(text: str, before: list[str] = before) -> None:
                before[:] = [text[-1:]]
                self._sink.arguments(text)

            found = yield from source.until(*ends, emit=emit, keep=True)
            inside = bool(before) and (before[0].isalnum() or before[0] in "_.")
            tag = found in source.stop_tags
            if (tag and source.stop(found) is not Stop.TEXT) or not (tag or inside):
                return
            self._sink.arguments(source.take(len(found)))

    def _value(self, *, named: bool) -> Waiting:
        sink = self._sink
        quote = yield from self._quote()
        if quote:
            sink.arguments('"')
            yield from self._string(
                quote,
                lambda text: sink.arguments(string_inside(text)),
                lambda at: self._ends_argument(at, named=named),
            )
            sink.arguments('"')
            return
        pieces: list[str] = []
        yield from self._expression(pieces)
        if not pieces:
            raise _BrokenError
        sink.arguments(python_to_json("".join(pieces).strip()))

    def _quote(self) -> Generator[None, None, str]:
        """Return the quote that comes next, with the prefix of a raw string, or an empty string."""
        prefix = (yield from self._source.peek())[:1]
        prefix = prefix if prefix in _RAW else ""
        start = (yield from self._source.peek(len(prefix) + 3))[len(prefix) :]
        if start in ('"""', "'''"):
            return prefix + start
        return prefix + start[:1] if start[:1] in ('"', "'") else ""

    def _string(self, quote: str, emit: Emit, ends: _Ends) -> Waiting:
        """Stream the string that begins here, unescaped. A quote ends it only where ``ends``
        agrees, because models write quotes inside quotes."""
        source = self._source
        source.take(len(quote))
        raw, quote = quote[0] in _RAW, quote.lstrip("rR")
        checked = 0  # up to this offset the string is known to continue
        while True:
            literals = (quote, "\\", *self._next_calls, *source.stop_tags)
            found = yield from source.until(*literals, emit=emit, keep=True)
            if found == "\\":
                source.take(1)
                emit((yield from (_raw_escape(source) if raw else _escape(source))))
                continue
            if found == quote:
                if (yield from ends(len(quote))):
                    source.take(len(quote))
                    return
            elif source.offset >= checked:
                tag = found in source.stop_tags
                kind = source.stop(found) if tag else Stop.PERHAPS
                if kind is Stop.PERHAPS:
                    goes_on = yield from self._goes_on(quote, ends)
                    checked = source.offset + goes_on
                    kind = Stop.TEXT if goes_on else Stop.CERTAIN
                if kind is Stop.CERTAIN:
                    raise _BrokenError
            emit(source.take(len(found)))

    def _goes_on(self, quote: str, ends: _Ends) -> Generator[None, None, int]:
        """Return the distance to the next quote if it may end the string, else 0."""
        at = 0
        while True:
            at, found = yield from self._source.find(at, quote, "\\")
            if found is None:
                return 0
            if found == quote:
                return at if (yield from ends(at + len(quote))) else 0
            at += 2

    def _ends_argument(self, start: int, *, named: bool) -> Generator[None, None, bool]:
        """True if an argument may end at this distance: at ``)`` followed by what may follow a
        call, or at a comma. After a named argument, the comma must be followed by another named
        one."""
        source = self._source
        at, char = yield from source.solid(start)
        if char == ")":
            return (yield from self._ends_call(at + 1))
        if char != ",":
            return not char
        at, char = yield from source.solid(at + 1)
        if not named or char in ("", ")"):
            return True
        return (yield from _keyword_ahead(source, at, self._own)) is not None

    def _ends_call(self, start: int) -> Generator[None, None, bool]:
        source = self._source
        at, char = yield from source.solid(start)
        if not char or (char in ",]" and self._body.brackets):
            return True
        for tag in source.stop_tags:
            if (yield from source.peek(at + len(tag)))[at:] == tag:
                return True
        return not self._body.brackets and "\n" in (yield from source.peek(at))[start:]

    def _expression(self, pieces: list[str]) -> Waiting:
        """Read everything up to the comma or bracket that ends an argument."""
        source = self._source
        closers: list[str] = []
        tags = (*self._next_names, *source.stop_tags)
        while True:
            char = yield from source.peek()
            if not char:
                raise EndOfTextError
            if not pieces and char == "=":
                raise _BrokenError  # the argument has no name
            if not closers and char in ",)]":
                return
            tag = (yield from source.at(*tags)) if tags else None
            if tag is not None and self._ends_expression(tag, pieces):
                raise _BrokenError
            inside = bool(pieces) and (pieces[-1].isalnum() or pieces[-1] == "_")
            if char in "\"'" or (char in _RAW and not inside and (yield from self._quote())):
                if pieces and (pieces[-1].isalnum() or pieces[-1] in "\"'_"):
                    raise _BrokenError  # a string without its opening quote
                yield from self._inner_string(pieces, closers)
                continue
            pieces.append(source.take(1))
            if char in _CLOSERS:
                closers.append(_CLOSERS[char])
            elif closers and char == closers[-1]:
                closers.pop()
            elif char in ")]}":
                raise _BrokenError

    def _ends_expression(self, tag: str, pieces: list[str]) -> bool:
        """True if ``tag``, or the start of another call, cannot be part of the expression."""
        if tag in self._next_names:
            return bool(pieces) and pieces[-1].isspace()
        return self._source.stop(tag) is not Stop.TEXT

    def _inner_string(self, pieces: list[str], closers: list[str]) -> Waiting:
        """Append a string inside a list or object as JSON, which is also valid Python."""
        quote = yield from self._quote()
        closer = closers[-1] if closers else ")"

        def ends(at: int) -> Generator[None, None, bool]:
            _, char = yield from self._source.solid(at)
            return not char or char in (",", ":", closer)

        text: list[str] = []
        yield from self._string(quote, text.append, ends)
        pieces.append(dumps("".join(text)))


def _positions(schema: dict[str, Any] | None) -> list[str]:
    """Return the names to use for positional arguments, in order."""
    properties = (schema or {}).get("properties")
    return list(properties) if isinstance(properties, dict) else []


def _keyword(
    source: Source, positions: list[str], own: OwnNames
) -> Generator[None, None, tuple[str, bool]]:
    """Read ``key=`` before an argument, or else take the name from its position. Return the name
    and whether it was given explicitly."""
    found = yield from _keyword_ahead(source, 0, own)
    if found is not None:
        key, size = found
        source.take(size)
        if key in positions:
            positions.remove(key)
        return key, True
    return (positions.pop(0) if positions else "argument"), False


_KEYWORD = re.compile(r"([^\W\d]\w*)\s*=(?!=)")
_KEYWORD_START = re.compile(r"[^\W\d]\w*\s*=?")


def _keyword_ahead(
    source: Source, start: int, own: OwnNames
) -> Generator[None, None, tuple[str, int] | None]:
    """Return the name of the argument that begins ``start`` characters ahead, and the length of
    ``key=``; None if there is no name. It is one of the tool's ``own``, or any identifier."""
    name = yield from own.ahead(source, start, "=")
    if name is not None:
        at, _ = yield from source.solid(start + len(name))
        after = (yield from source.peek(at + 2))[at:]
        if len(after) < 2:
            raise EndOfTextError
        return (name, at + 1 - start) if after != "==" else None
    size = 1
    while True:
        text = (yield from source.peek(start + size))[start:]
        if match := _KEYWORD.match(text):
            if match.end() < len(text):
                return match[1], match.end()
        elif (partial := _KEYWORD_START.match(text)) is None or partial.end() < len(text):
            return None
        if len(text) < size:
            raise EndOfTextError
        if size > MAX_NAME_CHARS:
            return None
        size += 1


def _raw_escape(source: Source) -> Generator[None, None, str]:
    """Read what follows a backslash in a raw string, where it only keeps a quote from ending it."""
    char = yield from source.peek()
    if not char:
        raise EndOfTextError
    return "\\" + source.take(1)


def _escape(source: Source) -> Generator[None, None, str]:
    char = yield from source.peek()
    if not char:
        raise EndOfTextError
    source.take(1)
    if char in _CODES:
        code, base, most = _CODES[char]
        match = code.match((char + (yield from source.peek(most)))[: most + 1])
        decoded = _character(int(match[1], base)) if match else None
        if match is None or decoded is None:
            return f"\\{char}"
        source.take(match.end() - 1)
        return decoded
    if char == "\n":
        return ""
    return _ESCAPES.get(char) or (char if char in "\\'\"" else f"\\{char}")


def _character(code: int) -> str | None:
    """Return the character with this code; None if there is none that can be sent."""
    character = chr(code) if code <= sys.maxunicode else ""
    return character if character and is_unicode(character) else None
