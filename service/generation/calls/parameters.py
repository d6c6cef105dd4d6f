"""Calls spelled with a tag for each argument, whose value is bare text between tags."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Protocol

from service.generation.calls.coercion import parameter_types, to_json
from service.generation.calls.json_text import dumps, read_container, string_inside
from service.generation.calls.sink import MAX_NAME_CHARS, CallSink, ToolSchemas
from service.generation.calls.source import Emit, NotACallError, Source, Waiting
from service.generation.formats.format import ParametersBody

_STRING_ATTRIBUTE = re.compile(r"\b(?:string|type)\s*=\s*\"?(\w+)")
_NAMES_OF_STRINGS = ("true", "string")
_NULLS = ("null", "None")
_STRING, _NULLABLE = frozenset({"string"}), frozenset({"string", "null"})


def read_parameters(
    source: Source, sink: CallSink, body: ParametersBody, close: str, tools: ToolSchemas
) -> Waiting:
    """One call, or where calls have tags of their own, all of them up to ``close``."""
    made = False
    while True:
        yield from source.space()
        if body.call_open and not (yield from source.accept(body.call_open)):
            if made:
                return
            raise NotACallError
        yield from _call(source, sink, body, close, tools)
        made = True
        if not body.call_open:
            return


def _call(
    source: Source, sink: CallSink, body: ParametersBody, close: str, tools: ToolSchemas
) -> Waiting:
    ends = tuple(end for end in (body.call_close, close) if end)
    if body.name_end:
        name = yield from source.text_until(body.name_end, limit=MAX_NAME_CHARS)
    else:
        name = yield from source.text_until(body.key_open, *ends, limit=MAX_NAME_CHARS, keep=True)
    name = _plain(name, body)
    half = name[: len(name) // 2]
    if body.doubled_names and name not in tools and name == f"{half}.{half}" and half in tools:
        name = half
    if body.name_attributes:
        yield from source.text_until(body.tag_end, limit=MAX_NAME_CHARS)
    sink.begin(name)
    schema = tools.get(name)
    yield from source.space()
    if body.object_open and (yield from source.accept(body.object_open)):
        yield from _object(source, sink, body)
        return
    opening = "{"
    while True:
        yield from source.space()
        if not (yield from source.accept(body.key_open)):
            break
        pieces: list[str] = []
        yield from source.until(body.key_end, emit=pieces.append)
        key = _plain("".join(pieces), body)
        types = parameter_types(schema, key)
        if body.attributes:
            types = yield from _attributes(source, body, types)
        if body.value_open:
            yield from source.space()
            yield from source.accept(body.value_open)
        sink.arguments(f"{opening}{dumps(key)}: ")
        opening = ", "
        value = _writer(types, sink.arguments, untyped_json=body.untyped_json)
        yield from _value(source, body, (body.key_open, *ends), value.write)
        value.end()
    sink.arguments("{}" if opening == "{" else "}")
    sink.end()
    if body.call_close:
        yield from source.accept(body.call_close)


def _plain(text: str, body: ParametersBody) -> str:
    """A name, or a key, as it is meant."""
    text = text.strip()
    return text.replace("&quot;", '"').replace("&amp;", "&") if body.escaped else text


def _object(source: Source, sink: CallSink, body: ParametersBody) -> Waiting:
    """All arguments as one object."""
    yield from source.until(body.tag_end, emit=lambda _: None)
    yield from source.space()
    if (yield from source.peek()) != "{":
        raise NotACallError
    yield from read_container(source, sink.arguments)
    sink.end()
    for close in (body.object_close, body.call_close):
        yield from source.space()
        yield from source.accept(close)


def _attributes(
    source: Source, body: ParametersBody, types: frozenset[str]
) -> Generator[None, None, frozenset[str]]:
    """What the attributes behind a key say of its value's type."""
    pieces: list[str] = []
    yield from source.until(body.tag_end, emit=pieces.append)
    match = _STRING_ATTRIBUTE.search("".join(pieces))
    if match is None:
        return types
    if match[1] in _NAMES_OF_STRINGS:
        return _STRING
    # It is no string; which other type it is the schema knows, or the text itself shows.
    return types - _STRING or frozenset({"number", "boolean", "null", "object", "array"})


def _value(source: Source, body: ParametersBody, followers: tuple[str, ...], emit: Emit) -> Waiting:
    """Emit a value. Its closing tag counts where something follows that may follow it: values may
    be texts about such tags."""
    ends: tuple[str, ...] = (body.value_close,)
    if body.trims_newline:
        yield from source.accept("\n")
        ends = (f"\n{body.value_close}", body.value_close)
    while True:
        found = yield from source.until(*ends, emit=emit)
        if (yield from source.ahead(*followers)):
            return
        emit(found)


class _ValueWriter(Protocol):
    def write(self, text: str) -> None: ...

    def end(self) -> None: ...


def _writer(types: frozenset[str], emit: Emit, *, untyped_json: bool) -> _ValueWriter:
    if types == _STRING or not (types or untyped_json):
        return _StringWriter(emit)
    if types == _NULLABLE:
        return _NullableWriter(emit)
    return _JsonWriter(types, emit, untyped_json=untyped_json)


class _StringWriter:
    """Text as a JSON string, passed on as it comes."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        emit('"')

    def write(self, text: str) -> None:
        self._emit(string_inside(text))

    def end(self) -> None:
        self._emit('"')


class _NullableWriter:
    """The same, unless the whole text is null."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._held = ""
        self._string: _StringWriter | None = None

    def write(self, text: str) -> None:
        if self._string is None:
            self._held += text
            if any(null.startswith(self._held) for null in _NULLS):
                return
            self._string = _StringWriter(self._emit)
            text = self._held
        self._string.write(text)

    def end(self) -> None:
        if self._held in _NULLS and self._string is None:
            self._emit("null")
            return
        if self._string is None:
            self._string = _StringWriter(self._emit)
            self._string.write(self._held)
        self._string.end()


class _JsonWriter:
    """A value that only its whole text tells."""

    def __init__(self, types: frozenset[str], emit: Emit, *, untyped_json: bool) -> None:
        self._types = types
        self._emit = emit
        self._untyped_json = untyped_json
        self._pieces: list[str] = []

    def write(self, text: str) -> None:
        self._pieces.append(text)

    def end(self) -> None:
        text = "".join(self._pieces)
        self._emit(to_json(text, self._types, untyped_json=self._untyped_json))
