"""Calls whose arguments are an object with bare keys and strings between tags of their own."""

from __future__ import annotations

import re

from service.generation.calls.coercion import python_to_json
from service.generation.calls.json_text import dumps, read_string, string_inside
from service.generation.calls.sink import MAX_NAME_CHARS, CallSink
from service.generation.calls.source import NotACallError, Source, Waiting
from service.generation.formats.format import RelaxedBody

_MARKS = {":": ": ", ",": ", ", "{": "{", "[": "[", "}": "}", "]": "]"}
_WORD = re.compile(r"[^\s,:\[\]{}\"<]+")


def read_relaxed(source: Source, sink: CallSink, body: RelaxedBody) -> Waiting:
    yield from source.space()
    if body.call_open and not (yield from source.accept(body.call_open)):
        raise NotACallError
    name = yield from source.text_until("{", limit=MAX_NAME_CHARS, keep=True)
    sink.begin(name.strip())
    depth = 0
    while True:
        yield from source.space()
        if (yield from source.accept(body.quote)):
            sink.arguments('"')
            yield from source.until(
                body.quote, emit=lambda text: sink.arguments(string_inside(text))
            )
            sink.arguments('"')
            continue
        char = yield from source.peek()
        if char == '"':
            sink.arguments(dumps((yield from read_string(source))))
        elif char in _MARKS:
            source.take(1)
            depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(char, 0)
            sink.arguments(_MARKS[char])
            if depth == 0:
                sink.end()
                return
        else:
            yield from _word(source, sink)


def _word(source: Source, sink: CallSink) -> Waiting:
    """A key, a number, true, false or null; anything else is a string without its quotes."""
    pieces: list[str] = []
    yield from source.run(_WORD, pieces.append)
    word = "".join(pieces)
    if not word:
        raise NotACallError
    if (yield from source.ahead(":")):
        sink.arguments(dumps(word))
    else:
        sink.arguments(python_to_json(word))
