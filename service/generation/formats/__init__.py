"""Output formats: how a model family's text marks reasoning and tool calls. Data, not code."""

from service.generation.formats.format import PLAIN, OutputFormat, ReasoningTags, ToolCallTags
from service.generation.formats.known import detect_format
from service.generation.formats.response_template import read_response_template

__all__ = [
    "PLAIN",
    "OutputFormat",
    "ReasoningTags",
    "ToolCallTags",
    "detect_format",
    "read_response_template",
]
