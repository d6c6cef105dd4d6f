"""How a chat template reads the calls that an assistant made earlier, where templates differ."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from service.conversation import JsonObject, text_of


class CallStyle(msgspec.Struct, frozen=True):
    """``text_arguments``: a call's arguments are JSON text, which the template writes as it is, not
    an object. ``null_content``: calls without a text have null as content, not an empty text, with
    which the template does not write them."""

    text_arguments: bool = False
    null_content: bool = False

    def messages(self, messages: list[JsonObject]) -> list[JsonObject]:
        """Return the messages in the form that the template reads."""
        if self == CallStyle():
            return messages
        return [
            self._message(message) if message.get("tool_calls") else message for message in messages
        ]

    def _message(self, message: JsonObject) -> JsonObject:
        styled = dict(message)
        if self.text_arguments:
            styled["tool_calls"] = list(map(_with_text, message["tool_calls"]))
        if self.null_content and not message.get("content"):
            styled["content"] = None
        return styled


class CallStyles(msgspec.Struct, frozen=True):
    """Those of a conversation with and without tools, which may have different templates."""

    with_tools: CallStyle = CallStyle()
    without_tools: CallStyle = CallStyle()


def _with_text(call: JsonObject) -> JsonObject:
    function = call["function"]
    return {**call, "function": {**function, "arguments": as_text(function["arguments"])}}


def as_text(arguments: Any) -> str:
    """Return arguments as the client's text, which the model wrote: any other would not be found in
    the prefix cache. An object without one is written as JSON."""
    if isinstance(arguments, str):
        return arguments
    text = text_of(arguments)
    return json.dumps(arguments, ensure_ascii=False) if text is None else text
