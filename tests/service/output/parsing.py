"""Running the parser over a text cut in any way, and saying what it found."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from service.formats import Opening, OutputFormat
from service.output.calls.sink import ToolSchemas
from service.output.events import (
    Delta,
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallBegin,
    ToolCallEnd,
)
from service.output.parser import OutputParser
from service.output.spans import TokenSpans

Summary = list[tuple[str, ...]]

TOOLS: dict[str, dict[str, Any] | None] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
    "set_alarm": {
        "type": "object",
        "properties": {
            "time": {"type": "string"},
            "repeat": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    },
    "ping": {"type": "object", "properties": {}},
    "note": {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "title": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "weight": {"type": ["number", "null"]},
            "extra": {},
        },
    },
    "f": None,
}


def parse(
    pieces: Iterable[str],
    output_format: OutputFormat,
    schemas: ToolSchemas = TOOLS,
    *,
    tools: bool = True,
    opening: Opening = Opening.TEXT,
    truncated: bool = False,
    by_token: bool = True,
    one_token: frozenset[str] = frozenset(),
    kind: type[OutputParser] = OutputParser,
) -> list[Delta]:
    """Events of a text that arrives in these pieces, one token each."""
    spans = TokenSpans()
    ids = (f"call_{number}" for number in itertools.count())
    log: list[Event] = []
    parser = kind(
        output_format,
        spans,
        log,
        tools=schemas if tools else None,
        opening=opening,
        one_token=one_token,
        mint_id=lambda: next(ids),
    )
    for tokens, piece in enumerate(pieces, start=1):
        if piece and by_token:
            parser.feed_token(piece, tokens)
        elif piece:
            spans.push(len(piece), tokens)
            parser.feed(piece)
    parser.finish(truncated=truncated)
    return [event for event in log if not isinstance(event, Finished)]


def summary(events: list[Delta]) -> Summary:
    """What was said, adjacent pieces of a kind joined, spans left out."""
    result: Summary = []
    for event in events:
        match event:
            case TextDelta(text):
                entry: tuple[str, ...] = ("text", text)
            case ReasoningDelta(text):
                entry = ("reasoning", text)
            case ToolCallBegin(_, call_id, name):
                entry = ("call", call_id, name)
            case ToolArgumentsDelta(_, text):
                entry = ("arguments", text)
            case ToolCallEnd():
                entry = ("end",)
        if result and result[-1][0] == entry[0] and entry[0] in ("text", "reasoning", "arguments"):
            result[-1] = (entry[0], result[-1][1] + entry[1])
        else:
            result.append(entry)
    return result


def cut(text: str, places: list[int]) -> list[str]:
    """The text in pieces, cut at these places (any numbers)."""
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]
