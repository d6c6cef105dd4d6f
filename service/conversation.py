"""What is said to a chat model, whatever API said it: the one shape that prompts are made from.

Each API's ``wire`` module turns its own messages into a ``Conversation``; nothing behind it knows
which API that was.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

JsonObject = dict[str, Any]


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A function the model may call. ``parameters`` is a JSON schema; ``strict`` requires that
    every call's arguments match it."""

    name: str
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool = False


class NamedTool(msgspec.Struct, frozen=True):
    """The one tool that must be called."""

    name: str


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """``messages`` are as chat templates take them (OpenAI's chat shape with text content, call
    arguments as objects, ``reasoning_content`` on an assistant's message).

    ``thinking`` switches reasoning on or off where the template can; None leaves it to the
    template, or to ``reasoning_effort``. ``variables`` are passed to the template as they are.
    ``param`` is the request's field that errors about the messages name.
    """

    messages: list[JsonObject]
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    thinking: bool | None = None
    reasoning_effort: str | None = None
    documents: list[JsonObject] | None = None
    variables: JsonObject = {}
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False  # templates write them themselves
    param: str = "messages"

    @property
    def calls_tools(self) -> bool:
        return bool(self.tools) and self.tool_choice != "none"

    def template_tools(self) -> list[JsonObject] | None:
        """Tools with keys in the order that models are trained on; None unless they may be
        called."""
        if not self.calls_tools:
            return None
        return [_template_tool(tool) for tool in self.tools]

    def tool_schemas(self) -> dict[str, JsonObject | None] | None:
        """The arguments' schemas by the tools' names; None unless they may be called."""
        if not self.calls_tools:
            return None
        return {tool.name: tool.parameters for tool in self.tools}

    def thinking_variables(self) -> JsonObject:
        """The template variables with which model families enable or disable reasoning."""
        thinking = self.thinking
        if thinking is None and self.reasoning_effort is not None:
            thinking = self.reasoning_effort != "none"
        variables: JsonObject = {}
        if thinking is not None:
            variables |= {"enable_thinking": thinking, "thinking": thinking}
        if self.reasoning_effort is not None:
            variables["reasoning_effort"] = self.reasoning_effort
        return variables


class _Function(JsonObject):
    """Some templates read every tool's description; where there is none they read an empty one,
    and those that print a tool as it is print none."""

    def __missing__(self, key: str) -> str:
        if key == "description":
            return ""
        raise KeyError(key)


def _template_tool(tool: ToolDefinition) -> JsonObject:
    definition = _Function(name=tool.name)
    if tool.description is not None:
        definition["description"] = tool.description
    if tool.parameters is not None:
        definition["parameters"] = tool.parameters
    return {"type": "function", "function": definition}


def call_arguments(text: str) -> Any:
    """Return a call's arguments as templates expect them: the object in ``text``, else the text."""
    try:
        # Stricter than the standard library: it rejects half surrogate pairs, which tokenizers
        # cannot encode.
        parsed = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return text
    return parsed if isinstance(parsed, dict) else text
