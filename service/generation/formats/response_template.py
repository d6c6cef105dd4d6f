"""Reading a checkpoint's own ``response_template`` as an output format.

Of transformers' format we take fields with literal tags: text reasoning and JSON tool calls. A
template that needs more (patterns, other bodies) is left to detection.
"""

from __future__ import annotations

from typing import Any

from service.generation.formats.format import OutputFormat, ReasoningTags, ToolCallTags

_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")


def read_response_template(declared: Any) -> OutputFormat | None:
    """None when nothing is declared, or nothing in it that we can follow exactly."""
    if not isinstance(declared, dict) or not isinstance(declared.get("fields"), dict):
        return None
    fields: dict[str, Any] = declared["fields"]
    reasoning = next((fields[name] for name in _REASONING_FIELDS if name in fields), None)
    calls = fields.get("tool_calls")
    reasoning_tags = _literal_tags(reasoning, "text")
    call_tags = _literal_tags(calls, "json")
    if (reasoning is not None and reasoning_tags is None) or (
        calls is not None and call_tags is None
    ):
        return None
    return OutputFormat(
        None if reasoning_tags is None else ReasoningTags(*reasoning_tags),
        None if call_tags is None else ToolCallTags(*call_tags),
        name="response_template",
    )


def _literal_tags(field: Any, content: str) -> tuple[str, str] | None:
    """``content`` is the kind of body the tags must enclose."""
    if not isinstance(field, dict) or field.get("content", "text") != content:
        return None
    opening, closing = _literal(field.get("open")), _literal(field.get("close"))
    if opening is None or closing is None:
        return None
    return opening, closing


def _literal(tag: Any) -> str | None:
    """Tags are compared without the white space around them: the parser takes it as theirs."""
    if isinstance(tag, list):
        tag = min(tag, key=len, default=None)
    return tag.strip() or None if isinstance(tag, str) else None
