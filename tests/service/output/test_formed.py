"""An answer in a form is text to its end, whatever its text looks like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.formats import Opening, OutputFormat
from service.formats.shipped import detect_format
from service.output.formed import FormedParser
from tests.service.output.parsing import Summary, cut, parse, summary

HUNYUAN = detect_format("", reasoning="hunyuan_a13b", calls="hunyuan")
WRITTEN_OUT = detect_format("", reasoning="reasoning", calls="hermes")
LLAMA = detect_format("", calls="llama3_json")
CALL = '<tool_call>{"name": "ping", "arguments": {}}</tool_call>'


def parsed(
    text: str,
    output_format: OutputFormat,
    places: list[int],
    opening: Opening = Opening.TEXT,
    one_token: frozenset[str] = frozenset(),
) -> Summary:
    pieces = cut(text, places)
    events = parse(pieces, output_format, opening=opening, one_token=one_token, kind=FormedParser)
    return summary(events)


@pytest.mark.parametrize(
    ("output_format", "answer"),
    [
        (HUNYUAN, "<answer>42</answer>"),
        (HUNYUAN, '"x </answer> y"'),
        (HUNYUAN, "<answer>"),
        (WRITTEN_OUT, "see </reasoning> tag"),
        (WRITTEN_OUT, "</reasoning>"),
        (WRITTEN_OUT, f'{{"a": "<reasoning>b</reasoning> {CALL}"}}'),
        (WRITTEN_OUT, "<tool_call> is a tag </tool_call>"),
        (WRITTEN_OUT, "<tool"),
        (LLAMA, '{"city": "Oslo"}'),
        (LLAMA, '{"a": "x"}\n\n{"name": "ping", "parameters": {}}'),
    ],
)
@given(places=st.lists(st.integers(1, 60), max_size=5))
def test_the_answer_is_kept_whole(
    output_format: OutputFormat, answer: str, places: list[int]
) -> None:
    assert parsed(answer, output_format, places) == [("text", answer)]
    if output_format is LLAMA:
        return
    assert output_format.reasoning is not None
    opened, closed = output_format.reasoning.open, output_format.reasoning.close
    both = [("reasoning", "Hm."), ("text", answer)]
    assert parsed(f"{opened}\nHm.\n{closed}\n{answer}", output_format, places) == both
    rest = f"\nHm.\n{closed}\n\n{answer}"
    assert parsed(rest, output_format, places, Opening.REASONING) == both


@given(places=st.lists(st.integers(1, 60), max_size=5))
def test_calls_may_come_instead_of_the_answer(places: list[int]) -> None:
    calls = [("call", "call_0", "ping"), ("arguments", "{}"), ("end",)]
    assert parsed(CALL, WRITTEN_OUT, places) == calls
    reasoned = f"<reasoning>Hm.</reasoning>\n{CALL}"
    assert parsed(reasoned, WRITTEN_OUT, places) == [("reasoning", "Hm."), *calls]
    bare = '{"name": "ping", "parameters": {}}'
    assert parsed(bare, LLAMA, places) == calls
    two = [*calls, ("call", "call_1", "ping"), *calls[1:]]
    assert parsed(f"{CALL}\n{CALL}", WRITTEN_OUT, places) == two


def test_special_tokens_without_meaning_may_come_first() -> None:
    tags = frozenset({"<answer>", "</answer>"})
    pieces = ["<answer>", "\n", "a ", "<ans", "wer>"]
    events = parse(pieces, HUNYUAN, one_token=tags, kind=FormedParser)
    assert summary(events) == [("text", "a <answer>")]
