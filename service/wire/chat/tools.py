"""Tools of a chat request, and which of them may be called.

Only functions are served. Tools of other kinds are a provider's own (web_search, mcp, …): they are
not run here, so they are left out and reported, as for Responses and Messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from service.constraint.request import ToolShape
from service.conversation import ToolChoice, ToolDefinition
from service.errors import InvalidRequestError
from service.wire.decode import Ignored, convert
from service.wire.sampling import Name
from service.wire.structured_output import tool_choice

MAX_CHAT_TOOLS = 512


class FunctionDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=256)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def definition(self) -> ToolDefinition:
        return ToolDefinition(
            name=self.name,
            description=self.description,
            parameters=self.parameters,
        )

    def shape(self, index: int) -> ToolShape:
        """Return the constraint on its calls. ``index``: its place in the request."""
        return ToolShape(
            name=self.name,
            parameters=self.parameters,
            strict=bool(self.strict),
            param=f"tools.{index}.function.parameters",
        )


class Tool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``function``: for tools of that type only."""

    type: Name
    function: FunctionDefinition | None = None
    cache_control: Any = None


Functions = dict[int, FunctionDefinition]
"""Functions by their place in the request."""


def functions_of(tools: Sequence[Tool]) -> Functions:
    return {
        index: tool.function
        for index, tool in enumerate(tools)
        if tool.type == "function" and tool.function is not None
    }


def check_tools(tools: Sequence[Tool], ignored: Ignored) -> None:
    """Raise InvalidRequestError for a custom tool, or one without its function; ``ignored`` gains
    the tools of other kinds."""
    ignored.drop_options(
        tuple(f"tools[{i}]" for i, tool in enumerate(tools) if tool.type != "function")
    )
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        if tool.type == "custom":
            raise _refused_custom(path)
        if tool.type != "function":
            if tool.function is not None or not tool.type:
                raise InvalidRequestError(
                    f"'{path}.type' must be 'function' for a tool with 'function', not "
                    f"{tool.type[:64]!r}.",
                    param=f"{path}.type",
                )
            ignored.add(f"{path}.{tool.type}")
        elif tool.function is None:
            raise InvalidRequestError(
                f"Missing required parameter: '{path}.function'.", param=f"{path}.function"
            )


def _refused_custom(path: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"'{path}.type' cannot be 'custom' here: send custom tools to /v1/responses, or declare "
        "them as tools of type 'function'.",
        param=f"{path}.type",
    )


# --- tool_choice ---------------------------------------------------------------------------------


class _FunctionName(msgspec.Struct, frozen=True):
    name: str


class _NamedFunction(msgspec.Struct, frozen=True):
    function: _FunctionName


class _Allowed(msgspec.Struct, frozen=True):
    mode: Literal["auto", "required"]
    tools: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=MAX_CHAT_TOOLS)]


class _AllowedChoice(msgspec.Struct, frozen=True):
    allowed_tools: _Allowed


def chosen_functions(
    asked: Any, tools: Sequence[Tool], ignored: Ignored
) -> tuple[ToolChoice, Functions]:
    """Return the ``tool_choice`` and the functions that it allows. The choice of a tool that is
    left out is reported, and leaves the choice to the model.

    Raises InvalidRequestError for an invalid choice, or for an unknown tool among those allowed.
    """
    functions = functions_of(tools)
    left_out = {tool.type for tool in tools} - {"function"}
    match asked:
        case {"type": "custom"}:
            raise _refused_custom("tool_choice")
        case {"type": "allowed_tools"}:
            allowed = convert(asked, _AllowedChoice, "tool_choice").allowed_tools
            allowed_names, others = _allowed_names(allowed, functions, ignored)
            choice: ToolChoice = allowed.mode
            functions = {at: one for at, one in functions.items() if one.name in allowed_names}
            left_out |= others
        case {"type": str(kind)} if kind in left_out:
            ignored.add(f"tool_choice.{kind}")
            return "auto", functions
        case _:
            choice = tool_choice(asked)
    if choice == "required" and not functions and left_out:
        ignored.add("tool_choice.required")
        choice = "auto"
    return choice, functions


def _allowed_names(
    allowed: _Allowed, functions: Functions, ignored: Ignored
) -> tuple[set[str], set[str]]:
    """Return the names of the allowed functions, and the types of the allowed tools that are left
    out."""
    known = {function.name for function in functions.values()}
    names: set[str] = set()
    others: set[str] = set()
    for index, raw in enumerate(allowed.tools):
        path = f"tool_choice.allowed_tools.tools[{index}]"
        match raw.get("type"):
            case "function":
                name = convert(raw, _NamedFunction, path).function.name
                if name not in known:
                    raise InvalidRequestError(
                        f"'tool_choice' allows '{name[:64]}', which is not among 'tools'.",
                        param=f"{path}.function.name",
                    )
                names.add(name)
            case "custom":
                raise _refused_custom(path)
            case str(kind):
                ignored.add(f"{path}.{kind}")
                others.add(kind)
            case _:
                raise InvalidRequestError(
                    f"Missing required parameter: '{path}.type'.", param=f"{path}.type"
                )
    return names, others
