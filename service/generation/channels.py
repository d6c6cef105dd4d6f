"""Messages whose header says what they are: Harmony's channels.

<|channel|>analysis<|message|>Let me see.<|end|>
<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{…}
"""

from __future__ import annotations

import re
from typing import Protocol

from service.generation.calls.json_text import read_container
from service.generation.calls.sink import CallSink
from service.generation.calls.source import NotACallError, Source, Waiting
from service.generation.formats.format import Channels

_MAX_HEADER_CHARS = 512


class HeaderSink(CallSink, Protocol):
    def channel(self, *, reasoning: bool) -> None:
        """What follows is text, or reasoning."""


def read_header(source: Source, sink: HeaderSink, channels: Channels, *, calls: bool) -> Waiting:
    """A header, and where it is a call's, the call to its end. Raises NotACallError for what is no
    header, and EndOfTextError."""
    header = yield from source.text_until(channels.message, limit=_MAX_HEADER_CHARS)
    call = re.search(channels.call, header) if calls else None
    if call is None:
        sink.channel(reasoning=re.search(channels.reasoning, header) is not None)
        return
    yield from source.space()
    if (yield from source.peek()) != "{":
        raise NotACallError
    sink.begin(call["name"])
    yield from read_container(source, sink.arguments)
    sink.end()
    yield from source.space()
    yield from source.accept(*channels.closes)
    sink.channel(reasoning=False)
