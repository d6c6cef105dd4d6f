"""Calls written as JSON: ``{"name": …, "arguments": {…}}``, alone or several in an array."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

from service.generation.calls.json_text import (
    dumps,
    loads,
    read_container,
    read_string,
    read_value,
)
from service.generation.calls.sink import CallSink
from service.generation.calls.source import NotACallError, Source, Waiting
from service.generation.formats.format import JsonBody, NamedJsonBody

_MAX_HEADER_CHARS = 512


def read_json(source: Source, sink: CallSink, body: JsonBody) -> Waiting:
    """One object, an array of them, or several with white space or semicolons between."""
    yield from source.space()
    if (yield from source.accept("[")):
        yield from _array(source, sink, body)
        return
    while True:
        yield from _call(source, sink, body)
        if not (yield from source.ahead(";", "{")):
            return
        yield from source.space()
        yield from source.accept(";")
        yield from source.space()


def _array(source: Source, sink: CallSink, body: JsonBody) -> Waiting:
    while True:
        yield from source.space()
        if (yield from source.accept("]")):
            return
        yield from _call(source, sink, body)
        yield from source.space()
        yield from source.accept(",")


def _call(source: Source, sink: CallSink, body: JsonBody) -> Waiting:
    """The object that begins here. Raises NotACallError."""
    if not (yield from source.accept("{")):
        raise NotACallError
    call = _Call(source, sink, body)
    while True:
        yield from source.space()
        if (yield from source.accept("}")):
            break
        key = yield from _key(source)
        yield from call.member(key)
        yield from source.space()
        if not (yield from source.accept(",")) and (yield from source.at("}")) is None:
            if call.begun:
                return  # the model forgot the closing brace
            raise NotACallError
    call.end()


class _Call:
    """One object, a member at a time."""

    def __init__(self, source: Source, sink: CallSink, body: JsonBody) -> None:
        self.begun = False  # and, as nothing else is passed on, complete
        self._source = source
        self._sink = sink
        self._body = body
        self._name = ""
        self._id: str | None = None
        self._whole: Any = {}  # arguments that could not be passed on as they came

    def member(self, key: str) -> Waiting:
        body, source = self._body, self._source
        if body.keyed_by_name:
            self._name = key
            yield from self._stream()
        elif self.begun:
            yield from read_value(source)  # what comes behind the arguments says nothing
        elif key == body.name_key:
            self._name = yield from read_string(source)
        elif key == body.id_key:
            self._id = str((yield from read_value(source)))
        elif key not in body.arguments_keys:
            yield from read_value(source)
        elif self._name and (yield from source.peek()) == "{":
            yield from self._stream()
        else:
            self._whole = yield from read_value(source)

    def _stream(self) -> Waiting:
        self.begun = True
        yield from _arguments(self._source, self._sink, self._name, self._id)

    def end(self) -> None:
        """The object is over: a call whose arguments stand before the name, or inside a string, is
        passed on now."""
        if self.begun:
            return
        arguments = loads(self._whole) if isinstance(self._whole, str) else self._whole
        if not self._name or not isinstance(arguments, dict):
            raise NotACallError
        self._sink.begin(self._name, self._id)
        self._sink.arguments(dumps(arguments))
        self._sink.end()


def _key(source: Source) -> Generator[None, None, str]:
    key = yield from read_string(source)
    yield from source.space()
    if not (yield from source.accept(":")):
        raise NotACallError
    yield from source.space()
    return key


def _arguments(source: Source, sink: CallSink, name: str, call_id: str | None = None) -> Waiting:
    if (yield from source.peek()) != "{":
        raise NotACallError
    sink.begin(name, call_id)
    yield from read_container(source, sink.arguments)
    sink.end()


def read_named_json(source: Source, sink: CallSink, body: NamedJsonBody, close: str) -> Waiting:
    """A name, the separator, and the arguments."""
    yield from source.space()
    if body.prefix:
        yield from source.accept(body.prefix)
    header = (yield from source.text_until(body.separator, limit=_MAX_HEADER_CHARS)).strip()
    name, call_id = header, None
    if body.header is not None:
        match = re.fullmatch(body.header, header)
        if match is None:
            raise NotACallError
        name, call_id = match["name"], match.groupdict().get("id")
    yield from source.space()
    ends = tuple(end for end in (body.end.strip(), close) if end)
    if ends and (yield from source.at(*ends)) is not None:
        sink.begin(name, call_id)
        sink.arguments("{}")
        sink.end()
    else:
        yield from _arguments(source, sink, name, call_id)
    if body.end:
        yield from source.space()
        yield from source.accept(body.end.strip())
