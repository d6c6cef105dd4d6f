"""The ordered, typed events of one choice, from which every API's responses are encoded.

Every event but ``Finished`` covers output tokens ``[start, end)``; the spans are in order and never
overlap. A token that completes two events belongs to the first; the second is then empty (``start
== end``). Tokens between two spans are those of tags, and of the white space next to them: the span
of text has only the tokens that made it, and none has those of a tag that ends reasoning.
"""

from __future__ import annotations

import msgspec


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    text: str
    start: int
    end: int


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    text: str
    start: int
    end: int


class ToolCallBegin(msgspec.Struct, frozen=True, gc=False):
    """``index`` counts the choice's tool calls from 0; ``id`` is created here and never changes."""

    index: int
    id: str
    name: str
    start: int
    end: int


class ToolArgumentsDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the arguments' JSON text, exactly as the model wrote it."""

    index: int
    text: str
    start: int
    end: int


class ToolCallEnd(msgspec.Struct, frozen=True, gc=False):
    """The call is complete: its arguments are one JSON object."""

    index: int
    start: int
    end: int


class Finished(msgspec.Struct, frozen=True):
    """``reason`` is ``stop``, ``length`` or ``tool_calls``. ``matched`` is the stop string or the
    stop token's id that ended the choice, None if an end-of-sequence token did.
    ``tokens`` counts every output token used, including those that made no text.
    ``is_last_hidden``: the last of them ended the choice and is not part of the answer."""

    reason: str
    matched: str | int | None
    tokens: int
    is_last_hidden: bool = False


Delta = ReasoningDelta | TextDelta | ToolCallBegin | ToolArgumentsDelta | ToolCallEnd
Event = Delta | Finished
