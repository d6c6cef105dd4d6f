"""Reads a checkpoint's own ``response_template`` as an output format.

Of transformers' format we support fields with literal tags: text reasoning and content, and JSON
tool calls. A template with anything more (patterns, other bodies, transforms, other fields) is
ignored in favor of detection, because part of it would be lost.
"""

from __future__ import annotations

from typing import Any

from service.formats.format import OutputFormat, ReasoningTags, ToolCallTags

_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
_FIELDS = frozenset({*_REASONING_FIELDS, "content", "tool_calls"})
# ``repeats`` and ``optional`` say how often a field may occur: here any field may occur any number
# of times.
_KEYS = frozenset({"open", "close", "content", "repeats", "optional", "transform"})
_UNCHANGED = ("{content}", {"type": "function", "function": "{content}"})


def read_response_template(declared: Any) -> OutputFormat | None:
    """Return None if nothing is declared, or if any part of it is not fully supported."""
    if not isinstance(declared, dict) or not isinstance(declared.get("fields"), dict):
        return None
    fields: dict[str, Any] = declared["fields"]
    reasoning = [name for name in _REASONING_FIELDS if name in fields]
    if not fields.keys() <= _FIELDS or len(reasoning) > 1 or not all(map(_known, fields.values())):
        return None
    tags = {name: _literal_tags(field) for name, field in fields.items()}
    calls = fields.get("tool_calls")
    if calls is not None and (calls.get("content") != "json" or tags["tool_calls"] is None):
        return None
    if any(tags[name] is None or _body(fields[name]) != "text" for name in reasoning):
        return None
    content = fields.get("content", {})
    if _body(content) != "text":
        return None
    return OutputFormat(
        ReasoningTags(*tags[reasoning[0]] or ()) if reasoning else None,
        None if calls is None else ToolCallTags(*tags["tool_calls"] or ()),
        ignored=(*_literals(content.get("open")), *_literals(content.get("close"))),
        name="response_template",
    )


def _known(field: Any) -> bool:
    return (
        isinstance(field, dict)
        and field.keys() <= _KEYS
        and field.get("transform", _UNCHANGED[0]) in _UNCHANGED
    )


def _body(field: dict[str, Any]) -> Any:
    """Return the kind of body that the tags enclose."""
    return field.get("content", "text")


def _literal_tags(field: dict[str, Any]) -> tuple[str, str] | None:
    opening, closing = _literal(field.get("open")), _literal(field.get("close"))
    if opening is None or closing is None:
        return None
    return opening, closing


def _literal(tag: Any) -> str | None:
    return min(_literals(tag), key=len, default=None)


def _literals(tag: Any) -> tuple[str, ...]:
    """Return tags without the white space around them, which the parser treats as part of the
    tag."""
    tags = tag if isinstance(tag, list) else [tag]
    return tuple(text.strip() for text in tags if isinstance(text, str) and text.strip())
