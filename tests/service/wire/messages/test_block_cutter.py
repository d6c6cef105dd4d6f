"""The content blocks that a choice's events become."""

from __future__ import annotations

import pytest

from service.output.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallBegin,
    ToolCallEnd,
)
from service.wire.messages.block_cutter import BlockCutter, blocks_of, stop_reason

BEGUN = ToolCallBegin(0, "id", "look", 0, 1)
ENDED = ToolCallEnd(0, 0, 1)


def arguments(text: str) -> Event:
    return ToolArgumentsDelta(0, text, 0, 1)


def text(said: str) -> Event:
    return TextDelta(said, 0, 1)


@pytest.mark.parametrize(
    ("events", "blocks"),
    [
        ([text("a"), text(" b")], [("text", "a b")]),
        ([text("\n"), text("\n")], []),
        ([text(" "), text("a")], [("text", " a")]),
        ([ReasoningDelta("why", 0, 1), text("\n\na")], [("thinking", "why"), ("text", "a")]),
        ([BEGUN, arguments('{"a": '), arguments("1}"), ENDED], [("tool_use", '{"a": 1}')]),
        ([BEGUN, arguments("{a: 1}"), text("so")], [("text", "look {a: 1}"), ("text", "so")]),
    ],
    ids=["text", "white space", "leading space", "thinking", "a call", "a malformed call"],
)
def test_events_become_blocks(events: list[Event], blocks: list[tuple[str, str]]) -> None:
    made = blocks_of([*events, Finished("stop", None, 1)])
    assert [(block.kind, block.text) for block in made] == blocks
    assert not any(block.is_cut for block in made)


def test_a_call_is_held_until_a_member_of_its_input_is_complete() -> None:
    cutter = BlockCutter()
    assert cutter.take(BEGUN) == cutter.take(arguments('{"a": ')) == []
    [step] = cutter.take(arguments("1, "))
    assert step.begun is cutter.block
    assert step.text.startswith('{"a": 1')


def test_a_cut_call_is_a_message_cut_by_its_limit() -> None:
    finished = Finished("tool_calls", None, 1)
    [block] = blocks_of([BEGUN, arguments('{"a": 1, '), finished])
    assert block.is_cut
    assert stop_reason(finished, has_cut_call=True) == ("max_tokens", None)
    assert stop_reason(finished, has_cut_call=False) == ("tool_use", None)
    assert stop_reason(Finished("stop", "END", 1), has_cut_call=False) == ("stop_sequence", "END")
