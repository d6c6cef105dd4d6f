"""A log of events folded into a whole answer."""

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
from service.output.log import FoldedCall, ShownTokens, fold, reasoning_tokens, shown_tokens

LOG: list[Event] = [
    ReasoningDelta("Let me ", 0, 2),
    ReasoningDelta("see.", 2, 5),
    TextDelta("Well", 5, 6),
    ToolCallBegin(0, "c0", "f", 6, 8),
    ToolArgumentsDelta(0, '{"a"', 8, 9),
    ToolArgumentsDelta(0, ": 1}", 9, 10),
    ToolCallEnd(0, 10, 11),
    TextDelta(", ", 11, 12),
    ToolCallBegin(1, "c1", "g", 12, 13),
    ToolArgumentsDelta(1, "{}", 13, 14),
    ToolCallEnd(1, 14, 14),
    ReasoningDelta(" So.", 14, 16),
    TextDelta("done", 16, 17),
    Finished("tool_calls", None, 20),
]


def test_pieces_of_each_kind_are_joined_in_their_order() -> None:
    folded = fold(LOG)
    assert folded.content == "Well, done"
    assert folded.reasoning == "Let me see. So."
    assert folded.tool_calls == [FoldedCall("c0", "f", '{"a": 1}'), FoldedCall("c1", "g", "{}")]
    assert folded.finished == Finished("tool_calls", None, 20)


def test_a_log_may_be_folded_at_any_time() -> None:
    for end in range(len(LOG) + 1):
        folded = fold(LOG[:end])
        assert fold(LOG).content.startswith(folded.content)
        assert (folded.finished is None) == (end < len(LOG))
        assert folded.shown_tokens == shown_tokens(LOG[:end])


def test_reasoning_has_a_count() -> None:
    assert reasoning_tokens(LOG) == 2 + 3 + 2
    assert reasoning_tokens([]) == 0


@pytest.mark.parametrize(
    ("finished", "shown"),
    [
        (Finished("length", None, 20), 20),
        (Finished("tool_calls", None, 20, is_last_hidden=True), 19),
        (Finished("stop", 7, 20, is_last_hidden=True), 19),
        (Finished("stop", 7, 20), 20),
        (Finished("stop", "END", 20), 17),
    ],
)
def test_all_tokens_are_shown_but_those_that_ended_the_answer(
    finished: Finished, shown: int
) -> None:
    events = [*LOG[:-1], finished]
    assert shown_tokens(events) == fold(events).shown_tokens == shown


HIDDEN: list[Event] = [
    ReasoningDelta("Let me see.", 0, 5),
    TextDelta("Well", 7, 9),  # after a tag and white space
    ToolCallBegin(0, "c0", "f", 9, 11),
    ToolArgumentsDelta(0, "{}", 11, 12),
    ToolCallEnd(0, 12, 13),
    TextDelta(".", 14, 15),
    ReasoningDelta("So.", 15, 17),
    Finished("length", None, 20),
]


def test_hidden_reasoning_and_its_tags_show_no_tokens() -> None:
    assert ShownTokens(reasoning=True).all(HIDDEN) == [(0, 20)]
    assert ShownTokens(reasoning=False).all(HIDDEN) == [(0, 0), (7, 15)]
    assert ShownTokens(reasoning=False).all(LOG) == [(0, 0), (5, 14), (16, 20)]


def test_white_space_between_a_text_and_hidden_reasoning_is_shown_if_text_follows() -> None:
    text, hidden, more = TextDelta("a", 0, 1), ReasoningDelta("b", 2, 5), TextDelta("\nc", 6, 7)
    shown = ShownTokens(reasoning=False)
    assert [shown.take(event, event.end) for event in (text, hidden, hidden, more)] == [
        [(0, 1)],
        [],
        [],
        [(1, 2), (6, 7)],
    ]
    assert ShownTokens(reasoning=False).all([text, hidden, Finished("stop", None, 6)]) == [(0, 1)]


def test_without_reasoning_the_tags_of_empty_reasoning_show_no_tokens() -> None:
    text = TextDelta("a", 3, 4)
    assert ShownTokens(reasoning=False).all([text, TextDelta("b", 6, 7)]) == [
        (0, 0),
        (3, 4),
        (6, 7),
    ]
    call = ToolCallBegin(0, "c0", "f", 2, 4)
    assert ShownTokens(reasoning=False).take(call, 4) == [(2, 4)]
    assert ShownTokens(reasoning=False).all([Finished("length", None, 3)]) == [(0, 0)]
