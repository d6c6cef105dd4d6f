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
from service.wire.messages.client_tools import VendorTool, vendor_tool
from service.wire.sampling import Name


class InputTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``type`` None or ``custom``: the client's own function. Of the vendor's tools, those that the
    client runs are offered to the model as functions, too; any other is left out, and named in a
    response header."""

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
    max_characters: Any = None  # the client's text editor cuts what it shows

    @property
    def is_hosted(self) -> bool:
        return self.type not in (None, "custom") and self.of_vendor is None

    @property
    def of_vendor(self) -> VendorTool | None:
        return vendor_tool(self.type or "")

    @property
    def parameters(self) -> dict[str, Any] | None:
        return self.input_schema if self.of_vendor is None else self.of_vendor.parameters


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
        if not tool.name or tool.parameters is None:
            needed = "'name' and 'input_schema'" if tool.of_vendor is None else "'name'"
            raise InvalidRequestError(f"A tool needs {needed}.", param=f"tools.{index}")
        if tool.of_vendor is not None:
            ignored.add(
                *(
                    f"tools[{index}].{field}"
                    for field in ("description", "input_schema", "input_examples")
                    if getattr(tool, field) is not None
                )
            )
        if tool.name in names:
            raise InvalidRequestError(
                f"Tool names must be unique; {tool.name[:64]!r} is used twice.",
                param=f"tools.{index}.name",
            )
        names.add(tool.name)
    if choice is not None:
        _check_choice(choice, tools, names)
    ignored.drop_options(tuple(f"tools[{i}]" for i, tool in enumerate(tools) if tool.is_hosted))
    ignored.add(*(f"tools.{tool.name or tool.type}" for tool in tools if tool.is_hosted))


def _check_choice(choice: InputToolChoice, tools: Sequence[InputTool], names: set[str]) -> None:
    """Raise InvalidRequestError for a choice that only a hosted tool could satisfy. ``names``:
    those of the tools that are offered."""
    message = ""
    if choice.type == "tool" and not choice.name:
        message = "'tool_choice' of type tool needs a name."
    elif choice.type == "tool" and choice.name not in names:
        kinds = [tool.type or "" for tool in tools if tool.name == choice.name]
        if kinds:
            name, kind = (choice.name or "")[:64], kinds[0][:64]
            message = f"{name!r} is a tool of type {kind}, which this server does not offer."
    elif choice.type == "any" and tools and not names:
        message = "'tool_choice' requires a tool call, but this server offers none of 'tools'."
    if message:
        raise InvalidRequestError(message, param="tool_choice")


def definitions_of(tools: Sequence[InputTool]) -> tuple[ToolDefinition, ...]:
    """Return what the model is shown of the tools that the client runs."""
    return tuple(
        ToolDefinition(
            name=tool.name,
            description=tool.of_vendor.description if tool.of_vendor else tool.description,
            parameters=tool.parameters,
        )
        for _, tool in _own(tools)
    )


def shapes_of(tools: Sequence[InputTool]) -> tuple[ToolShape, ...]:
    """Return the constraints on calls of the tools that the client runs."""
    return tuple(
        ToolShape(
            name=tool.name,
            parameters=tool.parameters,
            strict=tool.strict,
            param=f"tools.{index}.input_schema",
        )
        for index, tool in _own(tools)
    )


def _own(tools: Sequence[InputTool]) -> Iterator[tuple[int, InputTool]]:
    """Yield the tools that the client runs with their places in the request."""
    return ((index, tool) for index, tool in enumerate(tools) if not tool.is_hosted)
