"""Converts bare text values to JSON of the type given in the tool's schema."""

from __future__ import annotations

import ast
import json
import warnings
from typing import Any

from service.output.calls.json_text import INVALID, dumps, is_unicode, loads
from service.output.calls.tool_schemas import type_of

_MAX_LITERAL_CHARS = 1 << 20
_TRUE, _FALSE, _NULL = ("true", "True"), ("false", "False"), ("null", "None")


def to_json(text: str, types: frozenset[str], *, untyped_json: bool) -> str:
    """Convert ``text`` to JSON of one of ``types``, or to a JSON string if it matches none of them.
    If ``types`` is empty and ``untyped_json`` is set, text that is already valid JSON is kept as it
    is."""
    if not types and not untyped_json:
        return dumps(text)
    text_alone = text.strip()
    value = _value_of(text_alone)
    if value is INVALID or (types and not _is_of(value, types)):
        return dumps(text)
    return _spelled(text_alone, _integral(value) if "integer" in types else value)


def python_to_json(text: str) -> str:
    """Convert a Python literal to JSON; any other text becomes a JSON string."""
    value = _value_of(text)
    return dumps(text) if value is INVALID else _spelled(text, value)


def _spelled(text: str, value: Any) -> str:
    """Return the model's own text if it is valid JSON, so that numbers keep all their digits."""
    written = _strict(text)
    return text if type(written) is type(value) and written == value else dumps(value)


def _strict(text: str) -> Any:
    return loads(text, strict=True) if is_unicode(text) else INVALID


def _value_of(text: str) -> Any:
    """Evaluate a JSON or Python literal; INVALID if ``text`` is neither."""
    for spellings, value in ((_TRUE, True), (_FALSE, False), (_NULL, None)):
        if text in spellings:
            return value
    value = _strict(text)
    if value is INVALID and len(text) <= _MAX_LITERAL_CHARS:
        value = _python_value(text)
    return value


def _python_value(text: str) -> Any:
    """Accept both JSON and Python spellings of true, false and null, as models mix them."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # it is the model's Python, not ours
            tree = ast.parse(text.strip(), mode="eval")
        value = ast.literal_eval(_JsonNames().visit(tree))
        written = json.dumps(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return INVALID
    return INVALID if loads(written) is INVALID else value


class _JsonNames(ast.NodeTransformer):
    _VALUES = {"true": True, "false": False, "null": None}  # noqa: RUF012  # never changed

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(self._VALUES[node.id]) if node.id in self._VALUES else node


def _is_of(value: Any, types: frozenset[str]) -> bool:
    kind = type_of(value)
    if kind == "number" and "integer" in types:
        return "number" in types or isinstance(value, int) or value.is_integer()
    return kind in types


def _integral(value: Any) -> Any:
    """Turn 5.0 into 5 where the schema requires an integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
