"""Tools of a Messages request, and which of them may be called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from service.constraint.request import ToolShape
from service.conversation import NamedTool, ToolChoice, ToolDefinition
from service.errors import InvalidRequestError
from service.wire.decode import Ignored
from service.wire.sampling import Name


class InputTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``type`` None or ``custom``: the client's own function. Any other is a tool that the vendor
    would run; it is not run here, and is named in a response header."""

    type: Name | None = None
    name: Annotated[str, Meta(max_length=256)] = ""
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool = False
    cache_control: Any = None
    defer_loading: Any = None
    eager_input_streaming: Any = None
    allowed_callers: Any = None
    input_examples: Any = None

    @property
    def is_hosted(self) -> bool:
        return self.type not in (None, "custom")


class InputToolChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = None
    disable_parallel_tool_use: bool = False

    def choice(self) -> ToolChoice:
        match self:
            case InputToolChoice(type="any"):
                return "required"
            case InputToolChoice(type="none"):
                return "none"
            case InputToolChoice(type="tool", name=str(name)):
                return NamedTool(name)
        return "auto"


def check_input_tools(
    tools: Sequence[InputTool], choice: InputToolChoice | None, ignored: Ignored
) -> None:
    """Raise InvalidRequestError for a tool or a choice without what it needs, or for two tools of
    one name; ``ignored`` gains hosted tools."""
    names: set[str] = set()
    for index, tool in _own(tools):
        if not tool.name or tool.input_schema is None:
            raise InvalidRequestError(
                "A tool needs 'name' and 'input_schema'.", param=f"tools.{index}"
            )
        if tool.name in names:
            raise InvalidRequestError(
                f"Tool names must be unique; {tool.name[:64]!r} is used twice.",
                param=f"tools.{index}.name",
            )
        names.add(tool.name)
    if choice is not None and choice.type == "tool" and not choice.name:
        raise InvalidRequestError("'tool_choice' of type tool needs a name.", param="tool_choice")
    ignored.drop_options(tuple(f"tools[{i}]" for i, tool in enumerate(tools) if tool.is_hosted))
    ignored.add(*(f"tools.{tool.name or tool.type}" for tool in tools if tool.is_hosted))


def definitions_of(tools: Sequence[InputTool]) -> tuple[ToolDefinition, ...]:
    """Return what the model is shown of the client's own tools."""
    return tuple(
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters=tool.input_schema,
        )
        for _, tool in _own(tools)
    )


def shapes_of(tools: Sequence[InputTool]) -> tuple[ToolShape, ...]:
    """Return the constraints on calls of the client's own tools."""
    return tuple(
        ToolShape(
            name=tool.name,
            parameters=tool.input_schema,
            strict=tool.strict,
            param=f"tools.{index}.input_schema",
        )
        for index, tool in _own(tools)
    )


def _own(tools: Sequence[InputTool]) -> Iterator[tuple[int, InputTool]]:
    """Yield the client's own tools with their places in the request."""
    return ((index, tool) for index, tool in enumerate(tools) if not tool.is_hosted)
