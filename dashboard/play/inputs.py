"""What a visitor wrote as JSON or as lines, read. Errors say what was expected."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from dashboard.apis.ask import Tool
from dashboard.apis.sendable import unsendable

MOST_CHARACTERS = 100_000
MOST_TOOLS = 128
MOST_STOPS = 16

EXAMPLE_TOOLS = """[
  {
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {
      "type": "object",
      "properties": {"city": {"type": "string"}},
      "required": ["city"]
    }
  }
]"""
EXAMPLE_SCHEMA = """{
  "type": "object",
  "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
  "required": ["name", "age"],
  "additionalProperties": false
}"""


class _Function(msgspec.Struct):
    """As each API writes its tools: Responses and a bare list, or Anthropic's ``input_schema``."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None
    input_schema: dict[str, Any] | None = None


class _Wrapped(msgspec.Struct):
    """As Chat Completions writes them."""

    function: _Function


def tools(text: str) -> tuple[Tool, ...]:
    """Raises ValueError."""
    listed = _json(text, "Tools")
    if listed is None:
        return ()
    if not isinstance(listed, list):
        raise ValueError('Tools must be a JSON list: [{"name": …, "parameters": {…}}].')
    if len(listed) > MOST_TOOLS:
        raise ValueError(f"At most {MOST_TOOLS} tools are allowed; there are {len(listed)}.")
    return tuple(_tool(number, each) for number, each in enumerate(listed, 1))


def _tool(number: int, written: Any) -> Tool:
    wrapped = isinstance(written, dict) and "function" in written
    try:
        if wrapped:
            function = msgspec.convert(written, _Wrapped).function
        else:
            function = msgspec.convert(written, _Function)
    except msgspec.ValidationError as error:
        raise ValueError(f"Tool {number}: {error}.") from error
    if not function.name.strip():
        raise ValueError(f"Tool {number}: the name is empty.")
    parameters = function.parameters or function.input_schema or {"type": "object"}
    return Tool(function.name, function.description, parameters)


def schema(text: str) -> dict[str, Any] | None:
    """Raises ValueError."""
    written = _json(text, "JSON schema")
    if written is not None and not isinstance(written, dict):
        raise ValueError('The JSON schema must be a JSON object: {"type": "object", …}.')
    return written


def stops(text: str) -> tuple[str, ...]:
    """One a line; ``\\n`` and ``\\t`` in a line represent a new line and a tab. Raises
    ValueError."""
    found = [line for line in text.split("\n") if line]
    if len(found) > MOST_STOPS:
        raise ValueError(f"At most {MOST_STOPS} stop strings are allowed; there are {len(found)}.")
    return tuple(line.replace("\\n", "\n").replace("\\t", "\t") for line in found)


def documents(text: str) -> tuple[str, ...]:
    """One a line."""
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _json(text: str, name: str) -> Any:
    if not text.strip():
        return None
    if len(text) > MOST_CHARACTERS:
        raise ValueError(
            f"{name}: at most {MOST_CHARACTERS:,} characters are allowed; there are {len(text):,}."
        )
    try:
        read = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"{name}: not valid JSON at {where}: {error.msg}.") from error
    except RecursionError as error:
        raise ValueError(f"{name}: nested too deeply.") from error
    except ValueError as error:  # of Python's own limit
        raise ValueError(f"{name}: integers may have 4,300 digits.") from error
    wrong = unsendable(read)
    if wrong:
        raise ValueError(f"{name}: {wrong}.")
    return read
