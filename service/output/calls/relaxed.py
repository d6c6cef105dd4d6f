"""Parses calls whose arguments are an object with bare keys and strings in special quote tags."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, NamedTuple

from service.formats.format import RelaxedBody
from service.output.calls.coercion import python_to_json, to_json
from service.output.calls.json_text import dumps, read_string, string_inside
from service.output.calls.keys import OwnNames
from service.output.calls.sink import MAX_NAME_CHARS, CallSink, ToolSchemas
from service.output.calls.source import NotACallError, Source, Stop, Waiting
from service.output.calls.tool_schemas import in_schema, property_names, schema_types

_CLOSERS = {"{": "}", "[": "]"}
_WORDS = re.compile(r"[^\n,:\[\]{}\"<]+")
_NOT_IN_KEYS = (",", "{", "}", '"', "<", "\n")  # unless the tool itself has such a key


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


class _Open(NamedTuple):
    """An open bracket, the schema of the value that it opened, and the names of its members."""

    bracket: str
    schema: Any
    names: OwnNames


class _Arguments:
    """Reads the arguments object piece by piece."""

    def __init__(
        self, source: Source, sink: CallSink, body: RelaxedBody, schema: dict[str, Any] | None
    ) -> None:
        self._source = source
        self._sink = sink
        self._body = body
        self._root = schema or {}
        self._open: list[_Open] = []
        self._names: dict[int, tuple[Any, OwnNames]] = {}  # by the ids of schemas, kept with them

    def read(self) -> Generator[None, None, bool]:
        """True if the object is valid to its end; only then is what was written JSON."""
        source, sink = self._source, self._sink
        comma = ""  # what separates the next member or item from those before it
        while True:
            yield from source.space()
            char = yield from source.peek()
            if self._open and char == _CLOSERS[self._open[-1].bracket]:
                self._open.pop()
                sink.arguments(source.take(1))
                if not self._open:
                    return True
            else:
                sink.arguments(comma)
                comma = ""
                key = yield from self._key()
                if key is None:
                    return False
                part = self._part(key)
                yield from source.space()
                if (bracket := (yield from source.peek())) in _CLOSERS:
                    sink.arguments(source.take(1))
                    self._open.append(_Open(bracket, part, self._names_of(part)))
                    continue
                if not (yield from self._simple_value(part)):
                    return False
            yield from source.space()
            if (yield from source.accept(",")):
                comma = ", "
            elif (yield from source.peek()) != _CLOSERS[self._open[-1].bracket]:
                return False

    def _part(self, key: str | int) -> Any:
        """Return the schema of this member or item of what is open."""
        return in_schema(self._open[-1].schema, key, self._root) if self._open else self._root

    def _names_of(self, part: Any) -> OwnNames:
        known = self._names.get(id(part))
        if known is None:
            known = self._names[id(part)] = part, OwnNames(property_names(part, self._root))
        return known[1]

    def _key(self) -> Generator[None, None, str | int | None]:
        """Read a member's key and the colon after it; None if there is none, 0 in an array."""
        if not self._open or self._open[-1].bracket == "[":
            return 0
        source, quote = self._source, self._body.quote
        key = yield from self._open[-1].names.ahead(source, 0, ":")
        if key is not None:
            source.take(len(key))
        elif (yield from source.at(quote)):
            at, found = yield from source.find(len(quote), quote, *source.stop_tags)
            if found != quote:
                return None
            key = source.take(at + len(quote))[len(quote) : at]
        elif (yield from source.peek()) == '"':
            key = yield from self._json_string()
        else:
            at, found = yield from source.find(0, ":", *_NOT_IN_KEYS)
            if found == ":" and 0 < at <= MAX_NAME_CHARS:
                key = source.take(at).strip()
        if key is None:
            return None
        self._sink.arguments(dumps(key))
        yield from source.space()
        if not (yield from source.accept(":")):
            return None
        self._sink.arguments(": ")
        return key

    def _simple_value(self, part: Any) -> Generator[None, None, bool]:
        """Read a string, a number, true, false or null; False if there is none."""
        source, sink = self._source, self._sink
        if (yield from source.accept(self._body.quote)):
            sink.arguments('"')
            if not (yield from self._string()):
                return False
            sink.arguments('"')
            return True
        if (yield from source.peek()) == '"':
            text = yield from self._json_string()
            if text is not None:
                sink.arguments(dumps(text))
            return text is not None
        return (yield from self._words(part))

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

    def _words(self, part: Any) -> Generator[None, None, bool]:
        """Read a number, true, false or null; any other words are an unquoted string."""
        pieces: list[str] = []
        yield from self._source.run(_WORDS, pieces.append)
        words = "".join(pieces).rstrip()
        if not words:
            return False
        types = schema_types(part, self._root)
        if types:
            self._sink.arguments(to_json(words, types, untyped_json=False))
        else:
            self._sink.arguments(python_to_json(words))
        return True
