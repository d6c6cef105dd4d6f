"""Parses calls with one element per argument, possibly nested, with a mark before each tag:
``<city>Oslo</city><tags><item>a</item></tags>``."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, NamedTuple

from service.formats.format import ElementsBody
from service.output.calls.coercion import to_json
from service.output.calls.json_text import dumps, string_inside
from service.output.calls.keys import ELEMENT
from service.output.calls.sink import MAX_NAME_CHARS, CallSink, ToolSchemas
from service.output.calls.source import Emit, NotACallError, Source, Waiting
from service.output.calls.tool_schemas import in_schema, schema_types

_MAX_DEPTH = 64
_STRING = frozenset({"string"})
_NUMBERS = frozenset({"integer", "number"})
_LEADING_ZEROS = re.compile(r"\A\s*(-?)0+(?=\d)")
_MIXED = "$text"  # the key for text that is mixed with child elements


class _Element(NamedTuple):
    """An element's text and children. ``marked``: the mark that follows it has been consumed."""

    text: str
    children: list[tuple[str, _Element]]
    marked: bool


def read_elements(
    source: Source, sink: CallSink, body: ElementsBody, close: str, tools: ToolSchemas
) -> Waiting:
    """Read all calls up to ``close``."""
    made = False
    while True:
        yield from source.space()
        if (yield from source.at(close)):
            break
        marked = yield from source.accept(body.mark)
        while marked and (yield from source.accept(body.mark)):
            pass
        if marked is None and not made:
            break
        yield from source.space()
        if not (yield from source.accept(body.call_open)):
            break
        made = True
        if (yield from _call(source, sink, body, tools)):
            return
    if not made or (yield from source.at(*source.stop_tags)) is None:
        raise NotACallError


def _call(
    source: Source, sink: CallSink, body: ElementsBody, tools: ToolSchemas
) -> Generator[None, None, bool]:
    """Read one call. True if a closing tag other than its own ended it."""
    name = (yield from source.text_until(">", limit=MAX_NAME_CHARS)).strip().strip("\"'")
    sink.begin(name)
    schema = tools.get(name)
    opening = "{"
    marked = False
    between: list[str] = []
    while True:
        if not marked:
            yield from _to_mark(source, body, between.append)
            yield from source.space()
        marked = False
        if (yield from source.at(body.call_open)) or any(text.strip() for text in between):
            yield from _skip(source, sink, body, opening, between)
            return False
        own = yield from source.accept(body.call_close)
        if own or (yield from source.accept("</")):
            sink.arguments("{}" if opening == "{" else "}")
            sink.end()
            if not own:
                yield from source.until(">", emit=_ignore)
            return not own
        if not (yield from source.accept("<")):
            continue
        key = (yield from source.text_until(">", limit=MAX_NAME_CHARS)).strip()
        if ELEMENT.fullmatch(key) is None:
            yield from _skip(source, sink, body, opening, between)
            return False
        sink.arguments(f"{opening}{dumps(key)}: ")
        opening = ", "
        part = in_schema(schema, key, schema)
        if schema_types(part, schema) == _STRING:
            marked = yield from _string(source, sink, body, key, schema)
        else:
            element = yield from _element(source, body, key, 1)
            sink.arguments(_to_json(element, part, schema))
            marked = element.marked


def _string(
    source: Source, sink: CallSink, body: ElementsBody, key: str, schema: Any
) -> Generator[None, None, bool]:
    """Stream a string value. True if the mark that follows it has been consumed."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    siblings = tuple(f"<{other}>" for other in properties or () if other != key)
    sink.arguments('"')

    def emit(text: str) -> None:
        sink.arguments(string_inside(text))

    while True:
        yield from _to_mark(source, body, emit)
        space = yield from source.white_space()
        if (yield from source.accept(f"</{key}>")):
            marked = False
        elif (yield from source.at(body.call_close, *siblings)):
            marked = True  # the model omitted the closing tag
        elif (yield from source.accept("</")):
            yield from source.until(">", emit=_ignore)
            marked = False
        else:
            emit(body.mark + space)  # it belongs to the text
            continue
        sink.arguments('"')
        return marked


def _element(
    source: Source, body: ElementsBody, key: str, depth: int
) -> Generator[None, None, _Element]:
    """Read an element's content up to its closing tag."""
    pieces: list[str] = []
    children: list[tuple[str, _Element]] = []
    marked = False
    while True:
        space = ""
        if not marked:
            yield from _to_mark(source, body, pieces.append)
            space = yield from source.white_space()
        marked = False
        if (yield from source.accept(f"</{key}>")):
            break
        if (yield from source.at(body.call_close)):
            marked = True  # the model omitted the closing tag
            break
        if (yield from source.accept("</")):
            yield from source.until(">", emit=_ignore)
            break
        if depth >= _MAX_DEPTH or not (yield from source.accept("<")):
            pieces.append(body.mark + space)
            continue
        name = (yield from source.text_until(">", limit=MAX_NAME_CHARS)).strip()
        child = yield from _element(source, body, name, depth + 1)
        children.append((name, child))
        marked = child.marked
    return _Element("".join(pieces), children, marked)


def _to_json(element: _Element, part: Any, root: Any) -> str:
    """Convert to JSON as ``part`` of the tool's schema ``root`` requires."""
    types = schema_types(part, root)
    if element.children:
        if "array" in types and "object" not in types:
            items = [
                _to_json(child, in_schema(part, index, root), root)
                for index, (_, child) in enumerate(element.children)
            ]
            return f"[{', '.join(items)}]"
        return _object(element, part, root)
    text = element.text
    if not text.strip() and "string" not in types and types & {"array", "object"}:
        return "[]" if "array" in types else "{}"
    if types and types <= _NUMBERS:
        text = _LEADING_ZEROS.sub(r"\1", text)
    return to_json(text, types, untyped_json=False)


def _object(element: _Element, part: Any, root: Any) -> str:
    """Build a JSON object; elements that share a name become an array."""
    members: dict[str, list[str]] = {}
    for name, child in element.children:
        members.setdefault(name, []).append(_to_json(child, in_schema(part, name, root), root))
    if element.text.strip():
        key = _MIXED
        while key in members:
            key = f"${key}"
        members[key] = [dumps(element.text)]
    pairs = (
        f"{dumps(name)}: {values[0] if len(values) == 1 else '[' + ', '.join(values) + ']'}"
        for name, values in members.items()
    )
    return f"{{{', '.join(pairs)}}}"


def _to_mark(source: Source, body: ElementsBody, emit: Emit) -> Waiting:
    """Emit the text before the mark, then consume the mark, even if it is repeated."""
    yield from source.until(body.mark, emit=emit)
    while (yield from source.accept(body.mark)):
        pass


def _skip(
    source: Source, sink: CallSink, body: ElementsBody, opening: str, between: list[str]
) -> Waiting:
    """Pass on the rest of a malformed call verbatim, up to its end or the next call's start."""
    sink.arguments((opening if opening == "{" else "") + "".join(between))
    ends = (body.mark + body.call_close, body.mark + body.call_open, body.call_open)
    found = yield from source.until(*ends, *source.stop_tags, emit=sink.arguments, keep=True)
    sink.end(whole=False)
    if found == ends[0]:
        source.take(len(found))


def _ignore(text: str) -> None:
    """Discard text between elements; it has no meaning."""
