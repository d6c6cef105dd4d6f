"""Parses calls whose arguments are an object with bare keys and strings in special quote tags."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

from service.formats.format import RelaxedBody
from service.output.calls.coercion import python_to_json, to_json
from service.output.calls.json_text import dumps, read_string, string_inside
from service.output.calls.sink import MAX_NAME_CHARS, CallSink, ToolSchemas
from service.output.calls.source import NotACallError, Source, Stop, Waiting
from service.output.calls.tool_schemas import in_schema, schema_types

_MARKS = {":": ": ", ",": ", ", "{": "{", "[": "[", "}": "}", "]": "]"}
_WORD = re.compile(r"[^\s,:\[\]{}\"<]+")


def read_relaxed(source: Source, sink: CallSink, body: RelaxedBody, tools: ToolSchemas) -> Waiting:
    yield from source.space()
    openings = tuple(opening for opening in (body.call_open, *body.other_call_opens) if opening)
    if openings and not (yield from source.accept(*openings)):
        raise NotACallError
    name = (yield from source.text_until("{", limit=MAX_NAME_CHARS, keep=True)).strip()
    sink.begin(name)
    whole = yield from _Arguments(source, sink, body, tools.get(name)).read()
    if not whole and source.stop_tags:
        yield from source.until(*source.stop_tags, emit=sink.arguments, keep=True)
    sink.end(whole=whole)


class _Arguments:
    """Reads the arguments object piece by piece."""

    def __init__(
        self, source: Source, sink: CallSink, body: RelaxedBody, schema: dict[str, Any] | None
    ) -> None:
        self._source = source
        self._sink = sink
        self._body = body
        self._root = schema or {}
        self._open: list[tuple[str, Any]] = []  # open brackets, with the schemas of their contents
        self._key = ""

    def read(self) -> Generator[None, None, bool]:
        """True if the object is valid to its end."""
        source, sink = self._source, self._sink
        while True:
            yield from source.space()
            if (yield from source.accept(self._body.quote)):
                sink.arguments('"')
                if not (yield from self._string()):
                    return False
                sink.arguments('"')
                continue
            char = yield from source.peek()
            if char == '"':
                text = yield from self._json_string()
                if text is None:
                    return False
                sink.arguments(dumps(text))
                if (yield from source.ahead(":")):
                    self._key = text
            elif char in _MARKS:
                if not self._mark(char):
                    return False
                source.take(1)
                sink.arguments(_MARKS[char])
                if not self._open:
                    return True
            elif not (yield from self._word()):
                return False

    def _mark(self, char: str) -> bool:
        if char in "{[":
            self._open.append((char, self._schema()))
        elif char in "}]":
            bracket, _ = self._open.pop()
            return bracket == {"}": "{", "]": "["}[char]
        return True

    def _schema(self) -> Any:
        """Return the schema of the next value."""
        if not self._open:
            return self._root
        bracket, schema = self._open[-1]
        return in_schema(schema, 0 if bracket == "[" else self._key, self._root)

    def _string(self) -> Generator[None, None, bool]:
        """Read a string to its closing tag. False if one of the format's own tags ends it first."""
        source, quote = self._source, self._body.quote
        checked = 0

        def emit(text: str) -> None:
            self._sink.arguments(string_inside(text))

        while True:
            found = yield from source.until(quote, *source.stop_tags, emit=emit, keep=True)
            if found == quote:
                source.take(len(quote))
                return True
            kind = Stop.TEXT if source.offset < checked else source.stop(found)
            if kind is Stop.PERHAPS:
                at, end = yield from source.find(0, quote)
                _, follower = yield from source.solid(at + len(quote))
                if end is None or not follower or follower not in ",}]:":
                    return False
                checked = source.offset + at
            elif kind is Stop.CERTAIN:
                return False
            emit(source.take(len(found)))

    def _json_string(self) -> Generator[None, None, str | None]:
        """Read a string in plain quotes; None if one of the format's own tags comes first."""
        source = self._source
        at = 1
        while True:
            at, found = yield from source.find(at, '"', "\\", *source.stop_tags)
            if found == '"':
                return (yield from read_string(source))
            if found != "\\":
                return None
            at += 2

    def _word(self) -> Generator[None, None, bool]:
        """Read a key, a number, true, false or null; anything else is an unquoted string."""
        source, sink = self._source, self._sink
        pieces: list[str] = []
        yield from source.run(_WORD, pieces.append)
        word = "".join(pieces)
        if not word:
            return False
        if self._open[-1][0] == "{" and (yield from source.ahead(":")):
            self._key = word
            sink.arguments(dumps(word))
            return True
        types = schema_types(self._schema(), self._root)
        if types:
            sink.arguments(to_json(word, types, untyped_json=False))
        else:
            sink.arguments(python_to_json(word))
        return True
