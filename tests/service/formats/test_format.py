"""Formats are read from what the checkpoint itself says."""

from __future__ import annotations

import pytest

from service.formats import (
    OutputFormat,
    ReasoningTags,
    ShippedFormat,
    ToolCallTags,
    detect_format,
    named_format,
    shipped_formats,
)
from service.formats.format import token_like

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


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<a><b>", ("<a>", "<b>")),
        ("[TOOL_CALLS]x[ARGS]", ("[TOOL_CALLS]", "[ARGS]")),
        ("]<]minimax[>[<tool_call>", ("]<]minimax[>[", "<tool_call>")),
        ("<｜DSML｜invoke name=", ("｜DSML｜",)),
        ("<｜DSML｜calls>", ("<｜DSML｜calls>", "｜DSML｜")),
        ("plain text", ()),
    ],
)
def test_a_delimiter_shows_the_tokens_that_may_be_in_it(text: str, parts: tuple[str, ...]) -> None:
    assert sorted(token_like(text)) == sorted(parts)


@pytest.mark.parametrize("shipped", shipped_formats("tool_calls"), ids=lambda s: s.names[0])
def test_every_tag_is_named_once_for_the_tokenizer(shipped: ShippedFormat) -> None:
    form = OutputFormat(THINK, shipped.calls, shipped.channels, shipped.ignored)
    tags = form.tags
    assert len(set(tags)) == len(tags)
    assert "" not in tags
    expected = {*THINK.opens, *THINK.closes, *shipped.ignored}
    if shipped.calls is not None:
        expected |= {*shipped.calls.opens, *shipped.calls.around, shipped.calls.close} - {""}
    if shipped.channels is not None:
        expected |= {*shipped.channels.opens, *shipped.channels.closes}
    assert expected <= set(tags)
