"""Calls written as Python: ``[get_weather(city="Oslo", days=3), ping()]``."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

from service.generation.calls.coercion import python_to_json
from service.generation.calls.json_text import dumps, is_unicode, string_inside
from service.generation.calls.sink import MAX_NAME_CHARS, CallSink, ToolSchemas
from service.generation.calls.source import EndOfTextError, NotACallError, Source, Waiting
from service.generation.formats.format import PythonBody

_IDENTIFIER = re.compile(r"[\w.-]+")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_CLOSERS = {"(": ")", "[": "]", "{": "}"}


def read_python(source: Source, sink: CallSink, body: PythonBody, tools: ToolSchemas) -> Waiting:
    if body.brackets:
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
        if not body.brackets and made and (yield from source.peek()) == "<":
            return
        yield from _call(source, sink, tools)
        made = True
        yield from source.space()
        yield from source.accept(",")


def _word(source: Source) -> Generator[None, None, str]:
    pieces: list[str] = []
    yield from source.run(_IDENTIFIER, pieces.append)
    word = "".join(pieces)
    if not word or len(word) > MAX_NAME_CHARS:
        raise NotACallError
    return word


def _call(source: Source, sink: CallSink, tools: ToolSchemas) -> Waiting:
    name = yield from _word(source)
    if not (yield from source.accept("(")):
        raise NotACallError
    sink.begin(name)
    positions = _positions(tools.get(name))
    opening = "{"
    while True:
        yield from source.space()
        if (yield from source.accept(")")):
            break
        key = yield from _keyword(source, positions)
        sink.arguments(f"{opening}{dumps(key)}: ")
        opening = ", "
        yield from source.space()
        yield from _value(source, sink)
        yield from source.space()
        yield from source.accept(",")
    sink.arguments("{}" if opening == "{" else "}")
    sink.end()


def _positions(schema: dict[str, Any] | None) -> list[str]:
    """The names of arguments that are given without one."""
    properties = (schema or {}).get("properties")
    return list(properties) if isinstance(properties, dict) else []


def _keyword(source: Source, positions: list[str]) -> Generator[None, None, str]:
    """``key=`` in front of an argument, else the name that its place gives it."""
    match = yield from _keyword_ahead(source)
    if match is not None:
        source.take(match.end())
        key = match[1]
        if key in positions:
            positions.remove(key)
        return key
    return positions.pop(0) if positions else "argument"


_KEYWORD = re.compile(r"([^\W\d]\w*)\s*=(?!=)")
_KEYWORD_START = re.compile(r"[^\W\d]\w*\s*=?")


def _keyword_ahead(source: Source) -> Generator[None, None, re.Match[str] | None]:
    size = 1
    while True:
        text = yield from source.peek(size)
        if match := _KEYWORD.match(text):
            if match.end() < len(text):
                return match
        elif (start := _KEYWORD_START.match(text)) is None or start.end() < len(text):
            return None
        if len(text) < size:
            raise EndOfTextError
        if size > MAX_NAME_CHARS:
            return None
        size += 1


def _value(source: Source, sink: CallSink) -> Waiting:
    start = yield from source.peek(3)
    if start in ('"""', "'''"):
        yield from _string(source, sink, start)
    elif start[:1] in ('"', "'"):
        yield from _string(source, sink, start[0])
    else:
        pieces: list[str] = []
        yield from _expression(source, pieces)
        if not pieces:
            raise NotACallError
        sink.arguments(python_to_json("".join(pieces).strip()))


def _string(source: Source, sink: CallSink, quote: str) -> Waiting:
    """Passed on as it comes, its escapes undone."""
    source.take(len(quote))
    sink.arguments('"')

    def emit(text: str) -> None:
        sink.arguments(string_inside(text))

    while (yield from source.until(quote, "\\", emit=emit)) == "\\":
        emit((yield from _escape(source)))
    sink.arguments('"')


def _escape(source: Source) -> Generator[None, None, str]:
    char = yield from source.peek()
    if not char:
        raise EndOfTextError
    source.take(1)
    digits = _HEX_DIGITS.get(char)
    if digits is not None:
        text = yield from source.peek(digits)
        try:
            decoded = chr(int(text, 16))
        except (ValueError, OverflowError):
            return f"\\{char}"
        if len(text) < digits or not is_unicode(decoded):
            return f"\\{char}"
        source.take(digits)
        return decoded
    if char == "\n":
        return ""
    return _ESCAPES.get(char) or (char if char in "\\'\"" else f"\\{char}")


def _expression(source: Source, pieces: list[str]) -> Waiting:
    """Everything up to the comma or bracket that ends an argument."""
    closers: list[str] = []
    while True:
        char = yield from source.peek()
        if not char:
            raise EndOfTextError
        if not closers and char in ",)]":
            return
        pieces.append(source.take(1))
        if char in "\"'":
            while (yield from source.until(char, "\\", emit=pieces.append)) == "\\":
                pieces.append("\\" + (yield from source.peek()))
                source.take(len(pieces[-1]) - 1)
            pieces.append(char)
        elif char in _CLOSERS:
            closers.append(_CLOSERS[char])
        elif closers and char == closers[-1]:
            closers.pop()
