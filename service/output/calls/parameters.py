"""Parses calls with one tag per argument, whose value is bare text between tags."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, Protocol

from service.formats.format import ParametersBody
from service.output.calls.coercion import to_json
from service.output.calls.json_text import ValueEnding, dumps, read_container, string_inside
from service.output.calls.keys import MAX_PARAMETER_CHARS, ends_of_key, read_name
from service.output.calls.sink import MAX_NAME_CHARS, CallSink, ToolSchemas
from service.output.calls.source import Emit, NotACallError, Source, Stop, Waiting
from service.output.calls.tool_schemas import parameter_types

_STRING_ATTRIBUTE = re.compile(r"\b(?:string|type)\s*=\s*\"?(\w+)")
_NAMES_OF_STRINGS = ("true", "string")
CDATA, _CDATA_END = "<![CDATA[", "]]>"
NULLS = ("null", "None")
_STRING, NULLABLE = frozenset({"string"}), frozenset({"string", "null"})
_OTHERS = frozenset({"number", "boolean", "null", "object", "array"})


def read_parameters(
    source: Source,
    sink: CallSink,
    body: ParametersBody,
    close: str,
    tools: ToolSchemas,
    *,
    inner: bool = False,
) -> Waiting:
    """Read one call, or if each call has its own tags, all calls up to ``close``. ``inner``: the
    surrounding tag is missing."""
    made = False
    while True:
        yield from source.space()
        if body.call_open and not (yield from source.accept(body.call_open)):
            if made:
                return
            raise NotACallError
        call = _Call(source, sink, body, close, tools)
        yield from call.read(inner=inner and not made)
        made = True
        if not body.call_open:
            return


class _Call:
    """Reads one call argument by argument."""

    def __init__(
        self, source: Source, sink: CallSink, body: ParametersBody, close: str, tools: ToolSchemas
    ) -> None:
        self._source = source
        self._sink = sink
        self._body = body
        self._tools = tools
        self._ends = tuple(end for end in (body.call_close, close) if end)
        outside = (*self._ends, *source.stop_tags, *((body.call_open,) if body.call_open else ()))
        self._outside = tuple(dict.fromkeys(outside))  # tags at which the call must have ended
        self._opening = "{"
        self._lacks_values = False  # some keys had no value

    def read(self, *, inner: bool) -> Waiting:
        source, sink, body = self._source, self._sink, self._body
        name, closed = yield from self._name()
        half = name[: len(name) // 2]
        known = half in self._tools and name not in self._tools
        if body.doubled_names and known and name == f"{half}.{half}":
            name = half
        if body.name_attributes and not closed:
            yield from source.text_until(body.tag_end, limit=MAX_NAME_CHARS)
        if inner and not closed:
            yield from source.space()
            if (yield from source.at(body.key_open, *self._ends)) is None:
                raise NotACallError
        sink.begin(name)
        if not closed and body.object_open and (yield from source.spells(body.object_open)):
            yield from self._object()
            return
        whole = closed or (yield from self._arguments(self._tools.get(name)))
        if whole:
            sink.arguments("{}" if self._opening == "{" else "}")
        else:  # pass the rest on verbatim, so that the client sees it is not JSON
            if self._opening == "{":
                sink.arguments("{")
            yield from source.until(*self._outside, emit=sink.arguments, keep=True)
        sink.end(whole=whole and not self._lacks_values)
        if body.call_close and not closed:
            yield from source.accept(body.call_close)
            while (yield from source.spells(body.call_close)):  # the model wrote it twice
                yield from source.space()
                yield from source.accept(body.call_close)

    def _name(self) -> Generator[None, None, tuple[str, bool]]:
        """Return the name and whether its tag is self-closing: ``<invoke name="ping"/>``."""
        source, body = self._source, self._body
        if not body.name_end:
            ends = (body.key_open, *self._ends)
            name = yield from source.text_until(*ends, limit=MAX_NAME_CHARS, keep=True)
            return read_name(name, body), False
        closing = _self_closing(body.name_end)
        ends = (body.name_end, *closing)
        name = yield from source.text_until(*ends, limit=MAX_NAME_CHARS, keep=True)
        end = yield from source.accept(*closing)
        if end is None:
            source.take(len(body.name_end))
        return read_name(name, body), end is not None

    def _object(self) -> Waiting:
        """Read all arguments from a single object."""
        source, sink, body = self._source, self._sink, self._body
        yield from source.space()
        yield from source.accept(body.object_open)
        yield from source.text_until(body.tag_end, limit=MAX_NAME_CHARS)
        yield from source.space()
        if (yield from source.peek()) == "{":
            whole = (yield from read_container(source, sink.arguments)) is ValueEnding.WHOLE
        else:
            whole = False
            sink.arguments("{")
            ends = (body.object_close, *self._outside)
            yield from source.until(*ends, emit=sink.arguments, keep=True)
        sink.end(whole=whole)
        for close in (body.object_close, body.call_close):
            yield from source.space()
            yield from source.accept(close)

    def _arguments(self, schema: dict[str, Any] | None) -> Generator[None, None, bool]:
        """Read all arguments. False if the next text is neither an argument nor the end of the
        call."""
        source, sink, body = self._source, self._sink, self._body
        while True:
            yield from source.space()
            if not (yield from source.accept(body.key_open)):
                if not self._outside:
                    return True
                return (yield from source.at(*self._outside)) is not None
            key = yield from self._key()
            if key is None:
                return False
            types, is_json = parameter_types(schema, key), False
            if body.attributes:
                told = yield from _attributes(source, body, types)
                if told is None:
                    return False
                types, is_json = told
            while len(body.key_end) > 2 and (yield from source.accept(body.key_end)):
                pass  # the model wrote it twice
            if body.value_open:
                yield from source.space()
                opened = False
                while (yield from source.accept(body.value_open)):
                    opened = True
                if not opened and (yield from source.at(body.key_open, *self._outside)):
                    self._lacks_values = True  # nothing is emitted before the value begins
                    continue
            sink.arguments(f"{self._opening}{dumps(key)}: ")
            self._opening = ", "
            writer = _writer(types, sink.arguments, json=is_json, untyped_json=body.untyped_json)
            yield from self._value(writer.write)
            writer.end()
            while (yield from source.spells(body.value_close)):  # the model wrote it twice
                yield from source.space()
                yield from source.accept(body.value_close)

    def _key(self) -> Generator[None, None, str | None]:
        """Return the text before ``key_end``; None if it cannot be a key."""
        source, body = self._source, self._body
        size = yield from self._key_size(0)
        if size is None:
            return None
        key = read_name(source.take(size), body)
        source.take(len(body.key_end))
        return key

    def _key_size(self, start: int) -> Generator[None, None, int | None]:
        """Return the length of the key ``start`` characters ahead; None if there is none."""
        source, body = self._source, self._body
        at, found = yield from source.find(start, *ends_of_key(body))
        if found is None or not 0 < at - start <= MAX_PARAMETER_CHARS:
            return None
        whole = (yield from source.peek(at + len(body.key_end)))[at:] == body.key_end
        return at - start if whole else None

    def _value(self, emit: Emit) -> Waiting:
        """Emit a value.

        Values may be texts about such tags, so a closing tag counts only if something valid follows
        it. If it is missing, the value ends at the next argument or at the end of the call.
        """
        source, body = self._source, self._body
        if body.cdata and (yield from source.spells(CDATA)):
            yield from self._cdata(emit)
            return
        if body.trims_newline:
            yield from source.accept("\n")
        close, nested = body.value_close, _opening_like(body.value_close)
        ends = (close, body.key_open, *self._outside)
        edges = ends if body.trims_newline else ends[1:]
        literals = tuple(dict.fromkeys((*ends, *(f"\n{end}" for end in edges), *nested)))
        depth = 0  # of tags in the value that look like the one that opened it
        checked = 0  # up to this offset the value is known to continue
        while True:
            found = yield from source.until(*literals, emit=emit, keep=True)
            edge = found not in ends and found not in nested
            tag = found[1:] if edge else found
            if tag == close:
                if (yield from self._closes(len(found), nested=depth > 0)):
                    source.take(len(found))
                    return
                depth = max(0, depth - 1)
            elif tag == body.key_open:
                if (yield from self._key_size(len(found))) is not None:
                    source.take(int(edge))
                    return
                depth += 1
            elif tag in nested:
                depth += 1
            elif source.offset >= checked:
                goes_on = yield from self._goes_on(tag, len(found))
                if not goes_on:
                    source.take(int(edge))
                    return
                checked = source.offset + goes_on
            emit(source.take(len(found)))

    def _closes(self, size: int, *, nested: bool) -> Generator[None, None, bool]:
        """True if the next ``size`` characters close the value."""
        source, body = self._source, self._body
        at, follower = yield from source.solid(size)
        if not follower:
            return True
        for tag in (body.key_open, *self._outside, *(() if nested else (body.value_close,))):
            if (yield from source.peek(at + len(tag)))[at:] == tag:
                return True
        # A tag at the end of a line or before another tag closes too: what follows is a malformed
        # tag.
        return not nested and (follower == "<" or "\n" in (yield from source.peek(at))[size:])

    def _goes_on(self, tag: str, size: int) -> Generator[None, None, int]:
        """If the value is a text about the tag at the end of the next ``size`` characters, because
        it is closed before anything else opens, return the distance to that point, else 0."""
        kind = self._source.stop(tag, size - len(tag))
        if kind is not Stop.PERHAPS:
            return size if kind is Stop.TEXT else 0
        body = self._body
        at, found = yield from self._source.find(size, body.value_close, body.key_open)
        return at if found == body.value_close else 0

    def _cdata(self, emit: Emit) -> Waiting:
        """Read one or more ``<![CDATA[…]]>`` sections in place of bare text. If the end of one is
        missing, the rest is left to the caller."""
        source, body = self._source, self._body
        while (yield from source.spells(CDATA)):
            yield from source.space()
            source.take(len(CDATA))
            checked = 0
            while True:
                found = yield from source.until(_CDATA_END, *self._outside, emit=emit, keep=True)
                if found == _CDATA_END:
                    source.take(len(found))
                    break
                if source.offset >= checked:
                    at, end = yield from source.find(0, _CDATA_END, CDATA)
                    if end != _CDATA_END:
                        return
                    checked = source.offset + at
                emit(source.take(len(found)))
        yield from source.space()
        yield from source.accept(body.value_close)


def _self_closing(name_end: str) -> tuple[str, ...]:
    """Return the self-closing forms of an XML tag; empty if it is not an XML tag."""
    if not name_end.endswith(">") or name_end.startswith("<"):
        return ()
    return (f"{name_end[:-1]}/>", f"{name_end[:-1]} />")


def _opening_like(close: str) -> tuple[str, ...]:
    """Return the start of a tag that ``close`` would close: ``<parameter`` for ``</parameter>``."""
    return (f"<{close[2:-1]}",) if close.startswith("</") and close.endswith(">") else ()


def _attributes(
    source: Source, body: ParametersBody, types: frozenset[str]
) -> Generator[None, None, tuple[frozenset[str], bool] | None]:
    """Adapt a value's types to the attributes that follow its key. Return them and whether the
    value is written as JSON; None if the attributes do not end."""
    pieces: list[str] = []
    yield from source.until(body.tag_end, emit=pieces.append)
    text = "".join(pieces)
    if "<" in text or len(text) > MAX_PARAMETER_CHARS:
        return None
    match = _STRING_ATTRIBUTE.search(text)
    if match is None:
        return types, False
    if match[1] in _NAMES_OF_STRINGS:
        return _STRING, False
    # Not bare text; the schema or the text itself determines the type. A string has JSON's quotes.
    strings = _STRING if not types or "string" in types else frozenset()
    return (types - _STRING or _OTHERS) | strings, True


def reads_text(types: frozenset[str], body: ParametersBody) -> bool:
    """True if a value of these types is read as bare text, in which quotes are characters of the
    string."""
    return types == NULLABLE or _is_text(types, untyped_json=body.untyped_json)


def _is_text(types: frozenset[str], *, untyped_json: bool) -> bool:
    return types == _STRING or not (types or untyped_json)


class _ValueWriter(Protocol):
    def write(self, text: str) -> None: ...

    def end(self) -> None: ...


def _writer(types: frozenset[str], emit: Emit, *, json: bool, untyped_json: bool) -> _ValueWriter:
    """``json``: the model said that the value is not bare text."""
    if json:
        return _JsonWriter(types, emit, untyped_json=untyped_json)
    if types == NULLABLE:
        return _NullableWriter(emit)
    if _is_text(types, untyped_json=untyped_json):
        return _StringWriter(emit)
    return _JsonWriter(types, emit, untyped_json=untyped_json)


class _StringWriter:
    """Streams text as a JSON string."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        emit('"')

    def write(self, text: str) -> None:
        self._emit(string_inside(text))

    def end(self) -> None:
        self._emit('"')


class _NullableWriter:
    """Streams text as a JSON string, unless the whole text is null."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._held = ""
        self._string: _StringWriter | None = None

    def write(self, text: str) -> None:
        if self._string is None:
            self._held += text
            if any(null.startswith(self._held) for null in NULLS):
                return
            self._string = _StringWriter(self._emit)
            text = self._held
        self._string.write(text)

    def end(self) -> None:
        if self._held in NULLS and self._string is None:
            self._emit("null")
            return
        if self._string is None:
            self._string = _StringWriter(self._emit)
            self._string.write(self._held)
        self._string.end()


class _JsonWriter:
    """Holds a value back until it is complete, as only then is its type known."""

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
