"""Names the function whose result a message holds: OpenAI's and Anthropic's clients send the call's
id only, and some chat templates write, or require, the name."""

from __future__ import annotations

from collections.abc import Iterable

from service.conversation import JsonObject


def name_results(messages: Iterable[JsonObject]) -> None:
    """Give each tool's message the ``name`` in the latest call before it that has its id, unless it
    has a name."""
    names: dict[str, str] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            if call["id"] is not None:
                names[call["id"]] = call["function"]["name"]
        if message["role"] == "tool" and not message.get("name"):
            name = names.get(message.get("tool_call_id", ""))
            if name is not None:
                message["name"] = name
