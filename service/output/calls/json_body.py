"""Parses calls written as JSON: ``{"name": …, "arguments": {…}}``, alone or several in an array."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

from service.formats.format import JsonBody, NamedJsonBody
from service.output.calls.json_text import (
    ValueEnding,
    dumps,
    loads,
    read_container,
    read_string,
    read_value,
)
from service.output.calls.sink import CallSink, ToolSchemas
from service.output.calls.source import NotACallError, Source, Waiting

_MAX_HEADER_CHARS = 512
_MOST_NAMES = 64


def read_json_calls(
    source: Source,
    sink: CallSink,
    body: JsonBody,
    tools: ToolSchemas,
    *,
    listed: bool | None = None,
) -> Waiting:
    """Read one object, an array of objects, or several separated by white space or semicolons.
    ``listed``: the text is already inside an array; None: decide from the text."""
    yield from source.space()
    if listed is None:
        listed = bool((yield from source.accept("[")))
    made = in_call = False
    while True:
        if listed and not in_call and (yield from _list_ends(source, made=made)):
            return
        in_call = yield from _call(source, sink, body, tools, begun=in_call)
        made = True
        if in_call:
            continue
        if listed:
            yield from source.space()
            yield from source.accept(",")
            continue
        while (yield from source.spells("}")):  # the model wrote it twice
            yield from source.space()
            yield from source.accept("}")
        if not (yield from source.ahead(";", "{")):
            return
        yield from source.space()
        while (yield from source.accept(";")):
            yield from source.space()


def _list_ends(source: Source, *, made: bool) -> Generator[None, None, bool]:
    """True if the array has no further call. ``made``: there was at least one."""
    yield from source.space()
    while made and (yield from source.accept("}", ",")):  # the model wrote it twice
        yield from source.space()
    if (yield from source.accept("]")):
        return True
    return made and (yield from _stops(source))  # the model omitted the bracket


def _stops(source: Source) -> Generator[None, None, bool]:
    """True if one of the format's own tags comes next."""
    tags = source.stop_tags
    return bool(tags) and (yield from source.at(*tags)) is not None


def _call(
    source: Source, sink: CallSink, body: JsonBody, tools: ToolSchemas, *, begun: bool
) -> Generator[None, None, bool]:
    """Read the object that begins here. ``begun``: its brace and first quote have been consumed.
    True if this object has no end, and the next one's brace and first quote have been consumed.
    Raises NotACallError."""
    if not begun and not (yield from source.accept("{")):
        raise NotACallError
    call = _Call(source, sink, body, tools)
    while True:
        if not begun:
            yield from source.space()
            if (yield from source.accept("}")):
                break
            if call.begun and (yield from source.at('"')) is None:
                return False  # the model omitted the closing brace
        key = yield from _key(source, begun=begun)
        begun = False
        ending = yield from call.member(key)
        if ending is ValueEnding.IN_CALL:
            return True
        if ending is ValueEnding.AT_CALL:
            return False
        yield from source.space()
        if not (yield from source.accept(",")) and (yield from source.at("}")) is None:
            if call.begun:
                return False  # as above
            raise NotACallError
    call.end()
    return False


class _Call:
    """Reads one object member by member."""

    def __init__(self, source: Source, sink: CallSink, body: JsonBody, tools: ToolSchemas) -> None:
        self.begun = False  # the arguments were streamed, so the call is complete
        self._source = source
        self._sink = sink
        self._body = body
        self._first_keys = first_keys(body, tools)
        self._name = ""
        self._id: str | None = None
        self._whole: Any = {}  # arguments that could not be streamed

    def member(self, key: str) -> Generator[None, None, ValueEnding]:
        body, source = self._body, self._source
        if body.keyed_by_name:
            self._name = key
            return (yield from self._stream())
        elif self.begun:
            yield from read_value(source)  # ignore members after the arguments
        elif key == body.name_key:
            self._name = yield from read_string(source)
        elif key == body.id_key:
            self._id = str((yield from read_value(source)))
        elif key not in body.arguments_keys:
            yield from read_value(source)
        elif self._name and (yield from source.peek()) == "{":
            return (yield from self._stream())
        else:
            self._whole = yield from read_value(source)
        return ValueEnding.WHOLE

    def _stream(self) -> Generator[None, None, ValueEnding]:
        self.begun = True
        keys = self._first_keys
        return (yield from _arguments(self._source, self._sink, self._name, self._id, keys))

    def end(self) -> None:
        """End the object. A call whose arguments came before its name, or inside a string, is
        emitted only now."""
        if self.begun:
            return
        arguments = loads(self._whole) if isinstance(self._whole, str) else self._whole
        if not self._name or not isinstance(arguments, dict):
            raise NotACallError
        self._sink.begin(self._name, self._id)
        self._sink.arguments(dumps(arguments))
        self._sink.end()


def first_keys(body: JsonBody, tools: ToolSchemas) -> tuple[str, ...]:
    """Return the keys with which a call's object may begin."""
    if body.keyed_by_name:
        return tuple(sorted(tools)[:_MOST_NAMES])
    return (body.name_key, *(() if body.id_key is None else (body.id_key,)), *body.other_keys)


def _key(source: Source, *, begun: bool) -> Generator[None, None, str]:
    key = yield from read_string(source, begun=begun)
    yield from source.space()
    if not (yield from source.accept(":")):
        raise NotACallError
    yield from source.space()
    return key


def _arguments(
    source: Source,
    sink: CallSink,
    name: str,
    call_id: str | None = None,
    first_keys: tuple[str, ...] = (),
) -> Generator[None, None, ValueEnding]:
    if (yield from source.peek()) != "{":
        raise NotACallError
    sink.begin(name, call_id)
    ending = yield from read_container(source, sink.arguments, first_keys=first_keys)
    sink.end(whole=ending is ValueEnding.WHOLE)
    return ending


def read_named_json(source: Source, sink: CallSink, body: NamedJsonBody, close: str) -> Waiting:
    """Read a name, the separator, and the arguments."""
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
    while (yield from source.spells(body.separator.strip() or body.separator)):  # repeated
        yield from source.space()
        yield from source.accept(body.separator.strip() or body.separator)
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
