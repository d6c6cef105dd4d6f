"""Output formats: how a model family's text marks reasoning and tool calls. Data, not code."""

from service.formats.format import (
    PLAIN,
    Channels,
    ElementsBody,
    JsonBody,
    NamedJsonBody,
    OutputFormat,
    ParametersBody,
    PythonBody,
    ReasoningTags,
    RelaxedBody,
    ToolCallTags,
)
from service.formats.opening import Opening, opening_of, reasoning_is_over
from service.formats.response_template import read_response_template
from service.formats.shipped import (
    AUTO_NAMES,
    ShippedFormat,
    detect_format,
    named_format,
    shipped_formats,
)

__all__ = [
    "AUTO_NAMES",
    "PLAIN",
    "Channels",
    "ElementsBody",
    "JsonBody",
    "NamedJsonBody",
    "Opening",
    "OutputFormat",
    "ParametersBody",
    "PythonBody",
    "ReasoningTags",
    "RelaxedBody",
    "ShippedFormat",
    "ToolCallTags",
    "detect_format",
    "named_format",
    "opening_of",
    "read_response_template",
    "reasoning_is_over",
    "shipped_formats",
]
