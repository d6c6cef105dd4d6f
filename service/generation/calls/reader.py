"""From a format's description to the reader of its calls."""

from __future__ import annotations

from service.generation.calls.json_body import read_json, read_named_json
from service.generation.calls.parameters import read_parameters
from service.generation.calls.python_body import read_python
from service.generation.calls.relaxed import read_relaxed
from service.generation.calls.sink import CallSink, ToolSchemas
from service.generation.calls.source import Source, Waiting
from service.generation.formats.format import (
    JsonBody,
    NamedJsonBody,
    ParametersBody,
    PythonBody,
    RelaxedBody,
    ToolCallTags,
)


def read_calls(source: Source, sink: CallSink, tags: ToolCallTags, tools: ToolSchemas) -> Waiting:
    """Everything behind ``tags.open`` up to and with ``tags.close``; a closing tag that the model
    forgot is not waited for. Raises NotACallError and EndOfTextError."""
    match tags.body:
        case JsonBody() as body:
            yield from read_json(source, sink, body)
        case NamedJsonBody() as body:
            yield from read_named_json(source, sink, body, tags.close)
        case ParametersBody() as body:
            yield from read_parameters(source, sink, body, tags.close, tools)
        case PythonBody() as body:
            yield from read_python(source, sink, body, tools)
        case RelaxedBody() as body:
            yield from read_relaxed(source, sink, body)
    if tags.close:
        yield from source.space()
        yield from source.accept(tags.close)
