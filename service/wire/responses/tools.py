"""Tools of a Responses request: flat for the model, with kind and namespace for the client.

Models know functions by a single name. A ``custom`` tool is shown to them as a function with one
string argument, ``input``. A tool inside a ``namespace`` keeps its own name, or, if another tool
has the same name, becomes ``namespace__name``. Tools of other kinds are OpenAI's own (web_search,
code_interpreter, …): they are not run here, so they are left out and reported.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from engine.messages import MAX_GRAMMAR_CHARS
from service.constraint.request import Grammar, Regex, ToolShape
from service.conversation import NamedTool, ToolChoice, ToolDefinition
from service.errors import InvalidRequestError
from service.wire.decode import convert
from service.wire.responses.request import MAX_TOOLS

CUSTOM_INPUT = "input"
_CUSTOM_PARAMETERS = {
    "type": "object",
    "properties": {CUSTOM_INPUT: {"type": "string"}},
    "required": [CUSTOM_INPUT],
    "additionalProperties": False,
}

ToolName = Annotated[str, Meta(min_length=1, max_length=256)]


class FunctionTool(msgspec.Struct, frozen=True):
    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class GrammarFormat(msgspec.Struct, frozen=True, tag="grammar"):
    syntax: Literal["lark", "regex"]
    definition: Annotated[str, Meta(max_length=MAX_GRAMMAR_CHARS // 4)]


class FreeFormat(msgspec.Struct, frozen=True, tag="text"):
    pass


class CustomTool(msgspec.Struct, frozen=True):
    name: ToolName
    description: str | None = None
    format: GrammarFormat | FreeFormat | None = None


class Namespace(msgspec.Struct, frozen=True):
    name: ToolName
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)]
    description: str | None = None


class ServedTool(NamedTuple):
    """One tool as the client named it. ``param`` is its path in the request."""

    name: str
    namespace: str | None
    tool: FunctionTool | CustomTool
    param: str

    @property
    def custom(self) -> bool:
        return isinstance(self.tool, CustomTool)


class ClientTool(msgspec.Struct, frozen=True):
    """The client's names for the tool that the model knows as ``flat``."""

    flat: str
    name: str
    namespace: str | None
    custom: bool


class Toolbox:
    """``tools`` by the name that the model knows; ``ignored``: names of unsupported ones."""

    def __init__(self, tools: Iterable[ServedTool], ignored: list[str]) -> None:
        tools = list(tools)
        bearers = Counter(tool.name for tool in tools)
        self.tools: dict[str, ServedTool] = {}
        self.ignored = ignored
        for tool in tools:
            flat = tool.name
            if bearers[flat] > 1 and tool.namespace is not None:
                flat = f"{tool.namespace}__{tool.name}"
            if flat in self.tools:
                raise InvalidRequestError(
                    f"Two tools have the name '{tool.name}'.", param=f"{tool.param}.name"
                )
            self.tools[flat] = tool

    @functools.cached_property
    def _flat_names(self) -> dict[tuple[str, str | None], str]:
        """The model's names by the client's; under None as the namespace, the first tool of that
        name."""
        names: dict[tuple[str, str | None], str] = {}
        for flat, tool in self.tools.items():
            names.setdefault((tool.name, None), flat)
            names.setdefault((tool.name, tool.namespace), flat)
        return names

    def names(self) -> list[ClientTool]:
        return [
            ClientTool(flat, tool.name, tool.namespace, tool.custom)
            for flat, tool in self.tools.items()
        ]

    @staticmethod
    def named(names: Iterable[ClientTool]) -> Toolbox:
        """Return a toolbox with only the tools' names, which is all that an answer needs."""
        box = Toolbox((), [])
        for tool in names:
            kind = CustomTool(tool.name) if tool.custom else FunctionTool(tool.name)
            box.tools[tool.flat] = ServedTool(tool.name, tool.namespace, kind, "tools")
        return box

    def definitions(self) -> tuple[ToolDefinition, ...]:
        return tuple(_definition(flat, tool) for flat, tool in self.tools.items())

    def shapes(self) -> tuple[ToolShape, ...]:
        """Return the constraints on their calls."""
        return tuple(_shape(flat, tool) for flat, tool in self.tools.items())

    def flat_name(self, name: str, namespace: str | None) -> str:
        """Return the model's name for a tool that the client named; the same name if it is
        unknown."""
        return self._flat_names.get((name, namespace), name)

    @staticmethod
    def joined(boxes: Iterable[Toolbox]) -> Toolbox:
        """Combine toolboxes; a tool that is repeated later in a conversation replaces the earlier
        one. Raises InvalidRequestError if there are too many tools."""
        known: dict[tuple[str, str | None], ServedTool] = {}
        ignored: list[str] = []
        for box in boxes:
            known |= {(tool.name, tool.namespace): tool for tool in box.tools.values()}
            ignored += box.ignored
        _check_count(len(known), "tools")
        return Toolbox(known.values(), ignored)

    def restricted(self, allowed: set[str]) -> Toolbox:
        """Return only the tools whose flat name is in ``allowed``."""
        box = Toolbox((), self.ignored)
        box.tools = {flat: tool for flat, tool in self.tools.items() if flat in allowed}
        return box


def read_tools(raw: list[dict[str, Any]], path: str = "tools") -> Toolbox:
    """Raises InvalidRequestError for an invalid tool of a supported kind."""
    served: list[ServedTool] = []
    ignored: list[str] = []
    for index, tool in enumerate(raw):
        _read_tool(tool, f"{path}[{index}]", None, served, ignored)
    _check_count(len(served), path)
    return Toolbox(served, ignored)


def _check_count(count: int, path: str) -> None:
    if count > MAX_TOOLS:
        raise InvalidRequestError(f"There may be at most {MAX_TOOLS} tools.", param=path)


def _read_tool(
    raw: dict[str, Any],
    path: str,
    namespace: str | None,
    served: list[ServedTool],
    ignored: list[str],
) -> None:
    kind = raw.get("type")
    if not isinstance(kind, str):
        raise InvalidRequestError(
            f"Missing required parameter: '{path}.type'.", param=f"{path}.type"
        )
    if kind == "namespace" and namespace is None:
        space = convert(raw, Namespace, path)
        for index, tool in enumerate(space.tools):
            _read_tool(tool, f"{path}.tools[{index}]", space.name, served, ignored)
    elif kind == "function":
        function = convert(raw, FunctionTool, path)
        served.append(ServedTool(function.name, namespace, function, path))
    elif kind == "custom":
        custom = convert(raw, CustomTool, path)
        served.append(ServedTool(custom.name, namespace, custom, path))
    else:
        ignored.append(f"{path}.{kind}")


def _definition(flat: str, served: ServedTool) -> ToolDefinition:
    tool = served.tool
    if isinstance(tool, FunctionTool):
        return ToolDefinition(
            name=flat,
            description=tool.description,
            parameters=tool.parameters,
        )
    description = tool.description
    if isinstance(tool.format, GrammarFormat):
        # The model must know the grammar, not only be constrained by it.
        note = f"The input matches this {tool.format.syntax} grammar:\n{tool.format.definition}"
        description = f"{description}\n\n{note}" if description else note
    return ToolDefinition(name=flat, description=description, parameters=_CUSTOM_PARAMETERS)


def _shape(flat: str, served: ServedTool) -> ToolShape:
    tool = served.tool
    if isinstance(tool, FunctionTool):
        return ToolShape(
            name=flat,
            parameters=tool.parameters,
            strict=bool(tool.strict),
            param=f"{served.param}.parameters",
        )
    form: Regex | Grammar | None = None
    param = f"{served.param}.format.definition"
    if isinstance(tool.format, GrammarFormat):
        text = tool.format.definition
        if tool.format.syntax == "regex":
            form = Regex(pattern=text, param=param)
        else:
            form = Grammar(text=text, param=param, syntax="lark")
    return ToolShape(name=flat, custom=True, input=form, input_key=CUSTOM_INPUT, param=param)


# --- tool_choice ---------------------------------------------------------------------------------


class _Named(msgspec.Struct, frozen=True):
    name: str
    namespace: str | None = None


class _Allowed(msgspec.Struct, frozen=True):
    mode: Literal["auto", "required"]
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)]


def choose_tools(asked: Any, toolbox: Toolbox) -> tuple[ToolChoice, Toolbox]:
    """Return the ``tool_choice`` and the tools that it allows. The choice of an unsupported tool is
    reported and leaves the choice to the model.

    Raises InvalidRequestError for an invalid choice, or for an unknown tool.
    """
    match asked:
        case None | "auto":
            return "auto", toolbox
        case "none":
            return "none", toolbox
        case "required":
            if not toolbox.tools and toolbox.ignored:
                toolbox.ignored.append("tool_choice.required")
                return "auto", toolbox
            return "required", toolbox
        case {"type": "function" | "custom"}:
            named = convert(asked, _Named, "tool_choice")
            return NamedTool(_known(named, toolbox)), toolbox
        case {"type": "allowed_tools"}:
            return _allowed(convert(asked, _Allowed, "tool_choice"), toolbox)
        case {"type": str(kind)}:
            toolbox.ignored.append(f"tool_choice.{kind}")
            return "auto", toolbox
    raise InvalidRequestError(
        "'tool_choice' must be none, auto, required, or an object with a type.", param="tool_choice"
    )


def _known(named: _Named, toolbox: Toolbox) -> str:
    flat = toolbox.flat_name(named.name, named.namespace)
    if flat not in toolbox.tools:
        raise InvalidRequestError(
            f"'tool_choice' names '{named.name}', which is not among 'tools'.", param="tool_choice"
        )
    return flat


def _allowed(asked: _Allowed, toolbox: Toolbox) -> tuple[ToolChoice, Toolbox]:
    names = set()
    for index, raw in enumerate(asked.tools):
        if raw.get("type") in ("function", "custom"):
            names.add(_known(convert(raw, _Named, f"tool_choice.tools[{index}]"), toolbox))
        else:
            toolbox.ignored.append(f"tool_choice.tools[{index}].{raw.get('type')}")
    return asked.mode, toolbox.restricted(names)
