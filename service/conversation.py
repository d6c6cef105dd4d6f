"""A conversation with a chat model: the common format from which prompts are built for every API.

Each API's ``wire`` module converts its messages to a ``Conversation``; later stages do not depend
on the API.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

JsonObject = dict[str, Any]


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A function the model may call, as it is shown. ``parameters`` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: JsonObject | None = None


class NamedTool(msgspec.Struct, frozen=True):
    """The one tool that must be called."""

    name: str


# Every level of effort that clients of OpenAI's and Anthropic's APIs send, Codex's included. A
# template may know others.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra", "persistent")
# What clients of other vendors send, and Quire's word for it.
_OTHER_EFFORTS = {"": None, "default": None, "auto": None, "disable": "none"}

ToolChoice = Literal["none", "auto", "required"] | NamedTool


def effort_of(word: str | None) -> str | None:
    """Return the level that a client's word means; None leaves it to the template."""
    if word is None:
        return None
    lower = word.lower()
    return _OTHER_EFFORTS.get(lower, lower if lower in EFFORTS else word)


class CallArguments(JsonObject):
    """A call's arguments with the JSON ``text`` that they were read from, which the object alone
    does not give back: spaces, digits, names that occur twice. To a template they are an object
    like any other, so the attribute's name begins with an underscore, which the sandbox hides."""

    __slots__ = ("_text",)

    def __init__(self, read: JsonObject, text: str) -> None:
        super().__init__(read)
        self._text = text


def text_of(arguments: Any) -> str | None:
    """Return the text that a call's arguments were read from; None if it is not known."""
    return arguments._text if isinstance(arguments, CallArguments) else None


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """``messages`` are in the format of chat templates (OpenAI's chat messages with text content,
    call arguments as objects, ``reasoning_content`` on an assistant's message).

    ``thinking`` switches reasoning on or off if the template supports that; None leaves it to the
    template, or to ``reasoning_effort``. ``variables`` are passed to the template unchanged.
    ``param`` and ``effort_param`` are the request's fields that errors about the messages and about
    ``reasoning_effort`` name.
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
    effort_param: str = "reasoning_effort"

    @property
    def calls_tools(self) -> bool:
        return bool(self.tools) and self.tool_choice != "none"

    def template_tools(self) -> list[JsonObject] | None:
        """Return the tools with keys in the order that models are trained on; None if tools must
        not be called."""
        if not self.calls_tools:
            return None
        return [_template_tool(tool) for tool in self.tools]

    def tool_schemas(self) -> dict[str, JsonObject | None] | None:
        """Return each tool's argument schema by name; None if tools must not be called."""
        if not self.calls_tools:
            return None
        return {tool.name: tool.parameters for tool in self.tools}

    def thinking_variables(self) -> JsonObject:
        """Return the template variables with which model families enable or disable reasoning."""
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
    """Reads as an empty description if there is none, for templates that read every tool's
    description; templates that print a whole tool print no description then."""

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
