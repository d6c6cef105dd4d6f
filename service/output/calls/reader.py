"""Selects the parser for a format's calls."""

from __future__ import annotations

from collections.abc import Generator

from service.formats.format import (
    ElementsBody,
    JsonBody,
    NamedJsonBody,
    ParametersBody,
    PythonBody,
    RelaxedBody,
    ToolCallTags,
)
from service.output.calls.elements import read_elements
from service.output.calls.json_body import first_keys, read_json_calls, read_named_json
from service.output.calls.json_text import dumps
from service.output.calls.parameters import read_parameters
from service.output.calls.python_body import read_python
from service.output.calls.relaxed import read_relaxed
from service.output.calls.sink import CallSink, ToolSchemas
from service.output.calls.source import Source, Waiting

_MAX_AHEAD_CHARS = 64
_STRAY = ("}", "]", ")")
_MOST_NAMES = 64
_MOST_OPENINGS = 4


def read_calls(
    source: Source,
    sink: CallSink,
    tags: ToolCallTags,
    tools: ToolSchemas,
    *,
    resumed: bool = False,
    inner: bool = False,
) -> Waiting:
    """Read from after ``tags.open`` through ``tags.close``; a closing tag that the model omitted is
    not waited for, and an empty pair of tags holds no call. ``resumed``: reads another call after a
    malformed one. ``inner``: reads a call's own tag, with the surrounding one missing. Raises
    NotACallError and EndOfTextError."""
    if not (resumed or inner) and (yield from _is_empty(source, tags)):
        return
    body = tags.body
    if tags.json is not None and not resumed and (yield from _json_ahead(source)):
        body = tags.json
    match body:
        case JsonBody():
            listed = True if resumed and body.array else None
            yield from read_json_calls(source, sink, body, tools, listed=listed)
        case NamedJsonBody():
            yield from read_named_json(source, sink, body, tags.close)
        case ParametersBody():
            yield from read_parameters(source, sink, body, tags.close, tools, inner=inner)
        case ElementsBody():
            yield from read_elements(source, sink, body, tags.close, tools)
        case PythonBody():
            yield from read_python(source, sink, body, tools, listed=resumed)
        case RelaxedBody():
            yield from read_relaxed(source, sink, body, tools)
    if tags.close:
        yield from source.space()
        while (yield from source.at(tags.close)) is None:
            if not (yield from source.accept(*_STRAY)):
                return
            yield from source.space()  # a bracket was closed twice
        yield from source.accept(tags.close)


def _json_ahead(source: Source) -> Generator[None, None, bool]:
    """True if an object comes next, or an array that is empty or begins with an object."""
    yield from source.space()
    for size in range(1, _MAX_AHEAD_CHARS):
        text = yield from source.peek(size)
        start = "".join(text.split())
        if start in ("{", "[{", "[]"):
            return True
        if start != "[" or len(text) < size:
            return False
    return False


def _is_empty(source: Source, tags: ToolCallTags) -> Generator[None, None, bool]:
    """True if there is nothing between the tags. The opening tag may be repeated."""
    for _ in range(_MOST_OPENINGS):
        if not (yield from _stands(source, tags.opens)):
            break
        yield from source.space()
        yield from source.accept(*tags.opens)
    empty = bool(tags.close) and (yield from source.spells(tags.close))
    if empty:
        yield from source.space()
        yield from source.accept(tags.close)
    return empty


def _stands(source: Source, tags: tuple[str, ...]) -> Generator[None, None, bool]:
    for tag in tags:
        if (yield from source.spells(tag)):
            return True
    return False


def resumes_at(tags: ToolCallTags, tools: ToolSchemas) -> tuple[str, ...]:
    """Return the texts with which another call begins after a malformed one, for formats that do
    not put each call in tags."""
    match tags.body:
        case JsonBody() as body:
            return tuple(f"{{{dumps(key)}:" for key in first_keys(body, tools))
        case ElementsBody(mark=mark, call_open=opening):
            return (mark + opening,)
        case PythonBody():
            return tuple(f"{name}(" for name in sorted(tools)[:_MOST_NAMES])
        case _:
            return ()


def inner_opening(tags: ToolCallTags) -> str:
    """Return the text that begins a call even if the model omitted the surrounding tag; empty if
    there is none."""
    match tags.body:
        case ParametersBody(call_open=opening) if opening not in tags.opens:
            return opening
        case _:
            return ""
