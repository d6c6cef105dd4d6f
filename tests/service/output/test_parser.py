"""Reasoning, text and tool calls come apart the same way however the text arrives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.formats import PLAIN, Opening, OutputFormat, ReasoningTags, detect_format, named_format
from service.output import tags
from service.output.events import Delta, TextDelta, ToolArgumentsDelta
from service.output.parser import OutputParser
from service.output.spans import TokenSpans
from tests.service.output import parsing
from tests.service.output.parsing import Summary, cut, summary

FORMAT = detect_format("<think></think><tool_call></tool_call>")
OPENAI = detect_format("", calls="openai", reasoning="openai")


def parse(
    pieces: Iterable[str], output_format: OutputFormat = FORMAT, **options: Any
) -> list[Delta]:
    return parsing.parse(pieces, output_format, **options)


def of(text: str, **options: Any) -> Summary:
    return summary(parse([text], **options))


CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def test_reasoning_then_text() -> None:
    assert of("<think>\nHm, well.\n</think>\n\nHello.") == [
        ("reasoning", "Hm, well."),
        ("text", "Hello."),
    ]


def test_a_tool_call_has_its_name_first_and_its_arguments_untouched() -> None:
    assert of(CALL) == [("call", "call_0", "weather"), ("arguments", '{"city": "Oslo"}'), ("end",)]


def test_a_raw_line_end_in_an_argument_becomes_the_escape_that_json_wants() -> None:
    """Models write code into arguments as they would into a file; clients' parsers are strict."""
    raw = CALL.replace("Oslo", "two\nlines\tand \x01")
    for pieces in ([raw], list(raw)):
        _, (_, arguments), _ = summary(parse(pieces))
        assert json.loads(arguments) == {"city": "two\nlines\tand \x01"}


def test_any_order_any_number_of_times() -> None:
    text = f"<think>a</think>b{CALL}<think>c</think>{CALL}\n{CALL}\nd"
    call = [("arguments", '{"city": "Oslo"}'), ("end",)]
    assert of(text) == [
        ("reasoning", "a"),
        ("text", "b"),
        ("call", "call_0", "weather"),
        *call,
        ("reasoning", "c"),
        ("call", "call_1", "weather"),
        *call,
        ("call", "call_2", "weather"),
        *call,
        ("text", "\n\nd"),
    ]


def test_a_call_inside_reasoning_is_a_call_and_reasoning_continues() -> None:
    assert [kind for kind, *_ in of(f"<think>let me{CALL}so</think>done")] == [
        *("reasoning", "call", "arguments", "end", "reasoning", "text")
    ]


def test_a_prompt_that_ends_inside_reasoning_starts_there() -> None:
    assert of("\nstill thinking\n</think>\nDone.", opening=Opening.REASONING) == [
        ("reasoning", "still thinking"),
        ("text", "Done."),
    ]


def test_without_tools_in_the_request_a_call_stays_text() -> None:
    assert of("Look: " + CALL, tools=False) == [("text", "Look: " + CALL)]


def test_a_format_without_tags_leaves_every_text_alone() -> None:
    text = "<think>x</think> \n" + CALL
    assert of(text, output_format=PLAIN) == [("text", text)]


def test_text_without_tags_keeps_all_its_white_space() -> None:
    text = "  indented\n\n  if a < b:\n\n"
    assert of(text) == [("text", text)]


@pytest.mark.parametrize(
    "body",
    [
        "not json at all",
        '["a", "list"]',
        '{"name": 5, "arguments": {}}',
        '{"name": "", "arguments": {}}',
        '{"arguments": {}}',
        '{"name": "f", "arguments": 5}',
        '{"name": "f", "arguments": "not an object"}',
        '{"name": "f" "arguments": {}}',
    ],
)
def test_a_body_that_is_not_a_call_is_released_as_text(body: str) -> None:
    text = f"so:\n<tool_call>{body}</tool_call> and on"
    assert of(text) == [("text", text)]


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('{"name": "f", "arguments": {}}', {}),
        ('{"name": "f"}', {}),
        ('{"arguments": {"a": 1}, "name": "f"}', {"a": 1}),
        ('{"name": "f", "parameters": {"a": [1, {"b": "}"}]}}', {"a": [1, {"b": "}"}]}),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', {"a": 1}),
        ('{"name": "f", "arguments": {"s": "</tool_call> \\" {"}}', {"s": '</tool_call> " {'}),
        (
            '{"name": "f", "arguments": {"emoji": "🚀", "zh": "你好"}}',
            {"emoji": "🚀", "zh": "你好"},
        ),
    ],
)
def test_every_way_to_write_a_call_gives_its_arguments(body: str, arguments: object) -> None:
    (call, text, end) = of(f"<tool_call>{body}</tool_call>")
    assert call[::2] == ("call", "f")
    assert json.loads(text[1]) == arguments
    assert end == ("end",)


def test_arguments_stream_while_they_arrive() -> None:
    pieces = list('<tool_call>{"name": "f", "arguments": {"text": "a long one"}}</tool_call>')
    deltas = [event for event in parse(pieces) if isinstance(event, ToolArgumentsDelta)]
    assert len(deltas) == len('{"text": "a long one"}')


def test_a_call_cut_off_in_its_arguments_never_ends() -> None:
    assert of('<tool_call>{"name": "f", "arguments": {"a": ', truncated=True) == [
        ("call", "call_0", "f"),
        ("arguments", '{"a": '),
    ]


def test_a_call_cut_off_before_its_name_leaks_no_markup() -> None:
    assert of('Sure.\n<tool_call>{"na', truncated=True) == [("text", "Sure.")]


def test_a_call_whose_closing_tag_the_model_forgot_is_complete() -> None:
    assert of('<tool_call>{"name": "f", "arguments": {}}')[-1] == ("end",)


def test_arguments_that_are_not_json_make_no_complete_call() -> None:
    events = of('<tool_call>{"name": "f", "arguments": {a: 1}}</tool_call>')
    assert ("arguments", "{a: 1}") in events
    assert ("end",) not in events


def test_half_a_tag_is_held_and_a_false_alarm_released() -> None:
    pieces = ["a <", "thin", "g> b"]
    assert summary(parse(pieces)) == [("text", "a <thing> b")]
    assert [e.text for e in parse(["a", " <", "tool", "_call"]) if isinstance(e, TextDelta)] == [
        "a",
        " <tool_call",
    ]


def _texts() -> st.SearchStrategy[str]:
    fragments = st.sampled_from(
        [
            *("<think>", "</think>", "<tool_call>", "</tool_call>", CALL, "<", "<tool", " ", "\n"),
            *('{"name": "f", "arguments": {"a": "}"}}', '{"name": "g"}', "word", "{", "}", '"'),
            *(
                '{"name": "f", "arguments": ',
                "é🚀",
                "</",
                "think>",
                '{"arguments": {}, "name": "h"}',
            ),
        ]
    )
    return st.lists(fragments, max_size=8).map("".join)


@given(
    text=_texts(),
    places=st.lists(st.integers(0, 10_000), max_size=12),
    tools=st.booleans(),
    opening=st.sampled_from([Opening.TEXT, Opening.REASONING]),
    truncated=st.booleans(),
)
def test_the_same_text_cut_anywhere_gives_the_same_events(
    text: str, places: list[int], tools: bool, opening: Opening, truncated: bool
) -> None:
    pieces = cut(text, places)
    options: dict[str, Any] = {"tools": tools, "opening": opening, "truncated": truncated}
    whole = of(text, **options)
    assert summary(parse(pieces, **options)) == whole
    assert summary(parse(list(text), **options)) == whole
    assert parse(pieces, **options) == parse(pieces, **options, by_token=False)


ACTION = '<|START_ACTION|>[{"tool_name": "ping", "parameters": {}}]<|END_ACTION|>'
_MARKED = st.lists(
    st.sampled_from(
        [
            *("<|START_THINKING|>hm<|END_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>"),
            ACTION,
            *("<co: 1>", "</co: 1>", "<co>", "It is", "hot", " ", "\n", " now."),
        ]
    ),
    max_size=8,
).map("".join)


@given(text=_MARKED, places=st.lists(st.integers(0, 10_000), max_size=12))
@example(text=f"Look.\n{ACTION}<co: 1>It is hot</co: 1> now.", places=[])
@example(text="So. <|START_THINKING|>hm<|END_THINKING|><co: 1>It is</co: 1>", places=[])
def test_white_space_before_a_mark_stays_in_place_however_the_text_is_cut(
    text: str, places: list[int]
) -> None:
    """A call or reasoning may come directly before the mark."""
    shipped = named_format("tool_calls", "cohere_command3")
    reasoning = ReasoningTags("<|START_THINKING|>", "<|END_THINKING|>")
    form = OutputFormat(reasoning, shipped.calls, marks=shipped.marks)
    whole = of(text, output_format=form)
    for by_token in (True, False):
        assert summary(parse(cut(text, places), form, by_token=by_token)) == whole
        assert summary(parse(list(text), form, by_token=by_token)) == whole


@given(text=_texts(), places=st.lists(st.integers(0, 10_000), max_size=12))
def test_spans_are_in_order_and_stay_within_the_tokens(text: str, places: list[int]) -> None:
    pieces = cut(text, places)
    position = 0
    for event in parse(pieces):
        assert event.start >= position
        assert event.start <= event.end <= len(pieces)
        position = event.end


@given(text=st.text(alphabet="ab \n", max_size=20))
def test_plain_text_has_a_span_for_each_token(text: str) -> None:
    """Each event names the tokens that made its text, so joining those tokens gives it back."""
    pieces = list(text)
    for event in parse(pieces):
        assert isinstance(event, TextDelta)
        assert "".join(pieces[event.start : event.end]) == event.text


_WORDS = ["a", "b", "\n", "\n\n", " ", "."]
_STRAY = ["</think>", "</tool_call>", "<tool_call>"]


@given(pieces=st.lists(st.sampled_from([*_WORDS, *_STRAY, "<think>", CALL]), max_size=12))
def test_the_tokens_of_a_text_spell_it(pieces: list[str]) -> None:
    """White space from before reasoning or calls has none."""
    for by_token in (True, False):
        before: type[Delta] = TextDelta
        for event in parse(pieces, by_token=by_token):
            spelled = "".join(pieces[event.start : event.end])
            if isinstance(event, TextDelta) and event.text != spelled:
                assert before is not TextDelta
                assert event.text.removesuffix(spelled).isspace()
            before = type(event)


@given(
    pieces=st.lists(st.sampled_from([*_WORDS, *_STRAY]), max_size=12),
    places=st.lists(st.integers(0, 10_000), max_size=12),
)
def test_all_of_a_text_is_in_its_tokens_however_they_are_cut(
    pieces: list[str], places: list[int]
) -> None:
    """A token with a piece of a tag, too, is the text's."""
    pieces = cut("".join(pieces), places)
    events = [event for event in parse(pieces) if isinstance(event, TextDelta)]
    tokens = iter("".join("".join(pieces[event.start : event.end]) for event in events))
    assert all(char in tokens for event in events for char in event.text)


@pytest.mark.parametrize(
    "body",
    [
        r'{"arguments": {"x": "\ud83d"}, "name": "f"}',
        r'{"name": "f", "arguments": {"x": "\ud83d"}}',
        r'{"name": "\ud83d", "arguments": {}}',
        r'{"arguments": {}, "name": "\ud83d"}',
    ],
    ids=["arguments first", "streamed", "name", "name last"],
)
def test_half_a_surrogate_pair_escaped_by_the_model_can_be_sent(body: str) -> None:
    for event in parse([f"<tool_call>{body}</tool_call>"]):
        msgspec.json.encode(event)


def test_a_call_that_is_a_list_after_much_white_space_is_text() -> None:
    text = "<tool_call>" + " " * 2000 + "[1]</tool_call>"
    for pieces in ([text], list(text)):
        events = parse(pieces)
        assert all(isinstance(event, TextDelta) for event in events)
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text


@pytest.mark.parametrize("rest", ["]", ",", "a=]", "a=,)", "=", "a=(]", "'", "a='\\"])
def test_invalid_python_ends_the_call_and_the_text_after_it_is_kept(rest: str) -> None:
    form = OutputFormat(tool_call=named_format("tool_calls", "lfm2").calls)
    text = f"<|tool_call_start|>[f({rest} and on"
    for pieces in ([text], list(text)):
        found = summary(parse(pieces, form))
        assert found[0] == ("call", "call_0", "f")
        assert ("end",) not in found


def test_a_long_run_of_white_space_is_not_remembered_with_the_text_after_it() -> None:
    for space in (" \n", "\n" * 500):
        parse([*"one", *space, "quaint"])
    known = [text for texts in tags._PLAIN_TEXTS.values() for text in texts if "quaint" in text]
    assert known == [" \nquaint"]


HARMONY = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>"


@pytest.mark.parametrize(
    ("output_format", "opening", "text", "answer"),
    [
        (FORMAT, Opening.REASONING, "\na < b\n</think>\n\nYes. \n", "Yes. \n"),
        (FORMAT, Opening.TEXT, "<think>a</think> b <think>c</think>d", "<think>b <think>d"),
        (FORMAT, Opening.TEXT, f"{CALL}\n\n{CALL}", f"{CALL}\n\n{CALL}"),
        (
            FORMAT,
            Opening.REASONING,
            f"a{CALL}b</think>c",
            CALL.partition("{")[2].partition("{")[2] + "c",
        ),
        (FORMAT, Opening.REASONING, "a <tool_call> b</think> c", "c"),
        (FORMAT, Opening.REASONING, '<tool_call>{"name": "b</think>\n c " d', 'c " d'),
        (FORMAT, Opening.REASONING, '<tool_call>{"<think>b</think></think>', "</think>"),
        (PLAIN, Opening.TEXT, "<think>a</think>b", "<think>a</think>b"),
        (OPENAI, Opening.HEADER, f"{HARMONY}final<|message|>Hi.", "<|start|>Hi."),
        (
            OPENAI,
            Opening.HEADER,
            f'{HARMONY}commentary to=functions.f <|constrain|>json<|message|>{{"a": 1}}<|call|>',
            '<|start|>{"a": 1}<|call|>',
        ),
    ],
)
@pytest.mark.parametrize("token", [".", r"<[^>]+>|\s*\w+|."])
def test_what_precedes_an_answer_is_known_before_it_is_parsed(
    output_format: OutputFormat, opening: Opening, text: str, answer: str, token: str
) -> None:
    spans = TokenSpans()
    parser = OutputParser(output_format, spans, [], tools={"f": None}, opening=opening)
    rest = []
    for number, piece in enumerate(re.findall(token, text, re.DOTALL), start=1):
        spans.push(len(piece), number)
        while piece and (size := parser.before_answer(piece)):
            parser.feed(piece[:size])
            piece = piece[size:]
        rest.append(piece)
        parser.feed(piece)
    assert "".join(rest) == answer


@pytest.mark.parametrize(
    ("fed", "waiting", "text", "size"),
    [
        ("a</think>", "", "\n b", 2),
        ("a</think>", "b", "\n b", 0),
        ("a", "</th", "ink>b", 4),
        ("a</th", "in", "k>b", 2),
    ],
)
def test_text_that_waits_counts_for_what_precedes_an_answer(
    fed: str, waiting: str, text: str, size: int
) -> None:
    spans = TokenSpans()
    parser = OutputParser(FORMAT, spans, [], tools=None, opening=Opening.REASONING)
    spans.push(len(fed + waiting + text), 1)
    parser.feed(fed)
    assert parser.before_answer(text, waiting) == size


@pytest.mark.parametrize(
    ("pieces", "opening", "spans"),
    [
        (["Hm", ".", "\n", "</think>", "\n\n", "Yes", "."], Opening.REASONING, [(5, 6), (6, 7)]),
        (["Hm", "</thi", "nk>\nYe", "s"], Opening.REASONING, [(2, 3), (3, 4)]),
        (
            ["<think>", "a", "</think>", "b", " ", "<think>", "c", "</think>", "d"],
            Opening.TEXT,
            [(3, 4), (8, 9)],
        ),
        ([CALL, "\n", "a"], Opening.TEXT, [(2, 3)]),
        ([" ", "a", " ", "b"], Opening.TEXT, [(0, 2), (2, 4)]),
    ],
)
@pytest.mark.parametrize("by_token", [True, False])
def test_text_has_the_tokens_that_made_it_without_those_of_tags(
    pieces: list[str], opening: Opening, spans: list[tuple[int, int]], by_token: bool
) -> None:
    events = parse(pieces, opening=opening, by_token=by_token)
    found = [(event.start, event.end) for event in events if isinstance(event, TextDelta)]
    assert found == spans


def test_a_call_after_reasoning_does_not_have_the_tokens_of_its_closing_tag() -> None:
    events = parse(["Hm", ".", "</think>", CALL], opening=Opening.REASONING)
    assert [(event.start, event.end) for event in events[:3]] == [(0, 1), (1, 2), (3, 4)]
