"""The formats shipped, recognised by the tags that a chat template writes."""

from __future__ import annotations

from service.generation.formats.format import OutputFormat, ReasoningTags, ToolCallTags

THINK = ReasoningTags("<think>", "</think>")
HERMES = ToolCallTags("<tool_call>", "</tool_call>")


def detect_format(template_source: str) -> OutputFormat:
    """What the template's own text shows of the family's format."""
    reasons = THINK.open in template_source or THINK.close in template_source
    # Families that write <function=NAME> inside the same tags are not Hermes' JSON.
    calls = HERMES.open in template_source and "<function=" not in template_source
    return OutputFormat(THINK if reasons else None, HERMES if calls else None)
