"""Formats are read from what the checkpoint itself says."""

from __future__ import annotations

import pytest

from service.formats import (
    OutputFormat,
    ReasoningTags,
    ToolCallTags,
    detect_format,
    named_format,
)

THINK = ReasoningTags("<think>", "</think>")
HERMES = ToolCallTags("<tool_call>", "</tool_call>")
CODER = named_format("tool_calls", "qwen3_coder").calls


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ '<think>' }}", OutputFormat(THINK, None)),
        ("{{ content.split('</think>') }}<tool_call>", OutputFormat(THINK, HERMES)),
        ("<tool_call>\n<function=NAME>", OutputFormat(None, CODER)),
        ("{{ messages }}", OutputFormat(None, None)),
    ],
)
def test_a_chat_template_shows_its_familys_tags(template: str, expected: OutputFormat) -> None:
    found = detect_format(template)
    assert (found.reasoning, found.tool_call) == (expected.reasoning, expected.tool_call)


def test_a_name_overrides_what_the_template_shows() -> None:
    template = "<think></think><tool_call></tool_call>"
    kimi = detect_format(template, calls="kimi_k2", reasoning="none")
    assert kimi.tool_call == named_format("tool_calls", "kimi_k2").calls
    assert kimi.reasoning is None
    with pytest.raises(ValueError, match=r"there are .*hermes"):
        detect_format(template, calls="no such")
