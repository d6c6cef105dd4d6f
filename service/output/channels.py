"""Parses messages whose header gives their type: Harmony's channels, recipients, content types.

<|channel|>analysis<|message|>Let me see.<|end|>
<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{…}
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Protocol

from service.formats.format import Channels, ToolCallTags
from service.output.calls.json_text import ValueEnding, read_container
from service.output.calls.reader import read_calls
from service.output.calls.sink import CallSink, ToolSchemas
from service.output.calls.source import EndOfTextError, NotACallError, Source, Waiting

_MAX_HEADER_CHARS = 512


class HeaderSink(CallSink, Protocol):
    def channel(self, *, reasoning: bool, shown: bool = True, calls: bool = True) -> None:
        """Set the type of the text that follows: reasoning or text, shown or hidden, and whether it
        may contain calls."""

    def call(self) -> None:
        """The header is a call's, whose arguments follow."""


def read_header(
    source: Source,
    sink: HeaderSink,
    channels: Channels,
    tags: ToolCallTags | None,
    tools: ToolSchemas | None,
    opened: str,
) -> Waiting:
    """Read a header and, if it begins a call, the whole call. ``tools``: None if calls are not
    parsed; ``opened``: the tag that began the header. Raises NotACallError if it is not a header,
    and EndOfTextError."""
    pieces: list[str] = []
    size = 0

    def collect(piece: str) -> None:
        nonlocal size
        size += len(piece)
        if size > _MAX_HEADER_CHARS:
            raise NotACallError
        pieces.append(piece)

    ends = (*channels.message, *channels.closes)
    end = yield from source.until(*ends, emit=collect, limit=_MAX_HEADER_CHARS)
    if end not in channels.message:
        raise NotACallError
    header = f"{opened}{''.join(pieces)}{end}"
    if re.search(channels.header, header) is None:
        raise NotACallError
    if tools is not None and tags is not None and end in tags.opens:
        sink.channel(reasoning=False)
        yield from read_calls(source, sink, tags, tools)
        return
    reasoning = channels.is_reasoning(header)
    name = None if tools is None else _called(channels, header, tools)
    if name is None:
        hidden = bool(channels.others) and re.search(channels.others, header) is not None
        calls = re.search(channels.calls_in, header) is not None
        sink.channel(reasoning=reasoning, shown=reasoning or not hidden, calls=calls)
        return
    sink.call()
    yield from _call(source, sink, channels, name)
    sink.channel(reasoning=False)


def _called(channels: Channels, header: str, tools: ToolSchemas) -> str | None:
    """Return the name of the tool that the header calls, if any."""
    match = re.search(channels.call, header) if channels.call else None
    if match is None:
        return None
    name = match["name"]
    if channels.others and name not in tools and re.search(channels.others, header) is not None:
        return None
    return name


def _call(source: Source, sink: CallSink, channels: Channels, name: str) -> Waiting:
    """Read a call's arguments; models omit them if there are none."""
    if (yield from _is_empty(source, channels)):
        sink.begin(name)
        sink.arguments("{}")
        sink.end()
    elif (yield from source.peek()) == "{":
        sink.begin(name)
        ending = yield from read_container(source, sink.arguments)
        sink.end(whole=ending is ValueEnding.WHOLE)
    else:
        raise NotACallError
    yield from source.space()
    yield from source.accept(*channels.closes)


def _is_empty(source: Source, channels: Channels) -> Generator[None, None, bool]:
    """True if the message ends here. Its closing tag may be a stop token and not appear in the
    text."""
    try:
        yield from source.space()
    except EndOfTextError:
        if source.truncated:
            raise
        return True
    return (yield from source.at(*channels.closes)) is not None
