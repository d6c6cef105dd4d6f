"""From a format's description to the reader of its calls."""

from __future__ import annotations

from collections.abc import Generator

from service.generation.calls.elements import read_elements
from service.generation.calls.json_body import read_json, read_named_json
from service.generation.calls.parameters import read_parameters
from service.generation.calls.python_body import read_python
from service.generation.calls.relaxed import read_relaxed
from service.generation.calls.sink import CallSink, ToolSchemas
from service.generation.calls.source import Source, Waiting
from service.generation.formats.format import (
    ElementsBody,
    JsonBody,
    NamedJsonBody,
    ParametersBody,
    PythonBody,
    RelaxedBody,
    ToolCallTags,
)

_MAX_AHEAD_CHARS = 64


def read_calls(source: Source, sink: CallSink, tags: ToolCallTags, tools: ToolSchemas) -> Waiting:
    """Everything behind ``tags.open`` up to and with ``tags.close``; a closing tag that the model
    forgot is not waited for. Raises NotACallError and EndOfTextError."""
    body = tags.body
    if tags.json is not None and (yield from _json_ahead(source)):
        body = tags.json
    match body:
        case JsonBody():
            yield from read_json(source, sink, body)
        case NamedJsonBody():
            yield from read_named_json(source, sink, body, tags.close)
        case ParametersBody():
            yield from read_parameters(source, sink, body, tags.close, tools)
        case ElementsBody():
            yield from read_elements(source, sink, body, tags.close, tools)
        case PythonBody():
            yield from read_python(source, sink, body, tools)
        case RelaxedBody():
            yield from read_relaxed(source, sink, body)
    if tags.close:
        yield from source.space()
        yield from source.accept(tags.close)


def _json_ahead(source: Source) -> Generator[None, None, bool]:
    """Whether an object, or an array that begins with one or is empty, stands here."""
    yield from source.space()
    for size in range(1, _MAX_AHEAD_CHARS):
        text = yield from source.peek(size)
        start = "".join(text.split())
        if start in ("{", "[{", "[]"):
            return True
        if start != "[" or len(text) < size:
            return False
    return False
