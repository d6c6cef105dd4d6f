"""Every shipped format reads its own examples, and nothing depends on how a text was cut."""

from __future__ import annotations

import gc
import itertools
import json
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.formats import (
    Opening,
    OutputFormat,
    ShippedFormat,
    detect_format,
    opening_of,
    shipped_formats,
)
from service.formats.shipped import Example
from service.output.events import TextDelta, ToolArgumentsDelta
from tests.service.output.parsing import cut, parse, summary

pytestmark = pytest.mark.integration

SHIPPED = [*shipped_formats("tool_calls"), *shipped_formats("reasoning")]


def output_format(shipped: ShippedFormat) -> OutputFormat:
    if shipped.reasoning is not None:
        return OutputFormat(shipped.reasoning, ignored=shipped.ignored, marks=shipped.marks)
    think = None if shipped.channels else detect_format("<think>").reasoning
    return OutputFormat(think, shipped.calls, shipped.channels, shipped.ignored, shipped.marks)


def opening(shipped: ShippedFormat) -> Opening:
    return Opening.HEADER if shipped.channels else Opening.TEXT


EXAMPLES = [
    pytest.param(shipped, example, id=f"{shipped.names[0]}-{number}")
    for shipped in SHIPPED
    for number, example in enumerate(shipped.examples)
]
FORMATS = pytest.mark.parametrize("shipped", SHIPPED, ids=lambda shipped: shipped.names[0])


def found(events: list[Any]) -> tuple[str, str, list[tuple[str, Any]]]:
    """Reasoning, text, and the complete calls."""
    text, reasoning = "", ""
    calls: list[tuple[str, Any]] = []
    arguments, name = "", ""
    for kind, *values in summary(events):
        match kind:
            case "text":
                text += values[0]
            case "reasoning":
                reasoning += values[0]
            case "call":
                name, arguments = values[1], ""
            case "arguments":
                arguments += values[0]
            case "end":
                calls.append((name, json.loads(arguments)))
    return reasoning, text, calls


@pytest.mark.parametrize(("shipped", "example"), EXAMPLES)
def test_an_example_says_what_its_file_says(shipped: ShippedFormat, example: Example) -> None:
    expected = (
        example.reasoning,
        example.content,
        [(name, json.loads(arguments)) for name, arguments in example.calls],
    )
    for pieces in ([example.text], list(example.text), cut(example.text, [*range(0, 5000, 7)])):
        assert found(parse(pieces, output_format(shipped), opening=opening(shipped))) == expected


@pytest.mark.parametrize(("shipped", "example"), EXAMPLES)
def test_no_part_of_a_tag_leaks_when_the_output_is_cut_off(
    shipped: ShippedFormat, example: Example
) -> None:
    """What was shown before the cut is the start of what the whole output shows."""
    whole = found(parse([example.text], output_format(shipped), opening=opening(shipped)))
    for length in range(len(example.text)):
        events = parse(
            [example.text[:length]],
            output_format(shipped),
            opening=opening(shipped),
            truncated=True,
        )
        reasoning, text, calls = found(events)
        assert _is_start(reasoning, whole[0])
        assert _is_start(text, whole[1])
        assert whole[2][: len(calls)] == calls


def _is_start(shown: str, whole: str) -> bool:
    """One character more, or words, may be the text's own; more of a tag is not."""
    agreed = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(shown, whole, strict=False))
    more = "".join(shown[len(list(agreed)) :].split())
    return len(more) <= 1 or more.isalpha()


def test_there_are_at_least_thirty_ways_to_write_calls() -> None:
    assert len(shipped_formats("tool_calls")) >= 30


def test_no_name_is_used_by_two_formats() -> None:
    for kind in ("tool_calls", "reasoning"):
        names = [name for shipped in shipped_formats(kind) for name in shipped.names]
        assert len(names) == len(set(names))


@FORMATS
def test_a_template_that_shows_a_familys_marks_is_known(shipped: ShippedFormat) -> None:
    for markers in shipped.markers:
        detected = detect_format("{{ messages }}" + " … ".join(markers))
        if shipped.reasoning is not None:
            assert detected.reasoning == shipped.reasoning
        else:
            assert detected.tool_call == shipped.calls
            assert detected.channels == shipped.channels


def _delimiters(shipped: ShippedFormat) -> list[str]:
    return list(output_format(shipped).tags)


def _texts(shipped: ShippedFormat) -> st.SearchStrategy[str]:
    """Parts of the format's own examples, whole and halved tags, and anything else."""
    tags = _delimiters(shipped)
    halves = [tag[: len(tag) // 2 + 1] for tag in tags] + [tag[1:] for tag in tags]
    parts = [example.text for example in shipped.examples]
    slices = [part[len(part) // 3 :] for part in parts] + [part[: len(part) // 2] for part in parts]
    fragments = st.sampled_from(
        [
            *(*tags, *halves, *parts, *slices),
            *("get_weather", "note", "f", "city", "text", "Oslo", "3", "true", "null", "None"),
            *(
                " ",
                "\n",
                "\n\n",
                "é🚀",
                "你",
                "\\",
                "\\n",
                "\\ud83d",
                '"',
                "'",
                "<",
                ">",
                "</",
                "=",
            ),
            *("{", "}", "[", "]", "(", ")", ",", ":", ";", "{}", '{"a": 1}', '{"name": "f"}'),
        ]
    )
    anything = st.text(alphabet=st.characters(codec="utf-8"), max_size=3)
    piece = st.one_of(fragments, anything)
    edits = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 12), piece), max_size=5)
    damaged = st.tuples(st.sampled_from(parts), edits).map(_edited)
    return st.one_of(st.lists(piece, max_size=9).map("".join), damaged)


def _edited(drawn: tuple[str, list[tuple[int, int, str]]]) -> str:
    """A text in which here and there some characters gave way to others."""
    text, edits = drawn
    for place, gone, put in edits:
        start = place % (len(text) + 1)
        text = text[:start] + put + text[start + gone :]
    return text


@FORMATS
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_the_same_text_cut_anywhere_gives_the_same_events(
    shipped: ShippedFormat, data: st.DataObject
) -> None:
    text = data.draw(_texts(shipped))
    options: dict[str, Any] = {
        "tools": data.draw(st.booleans()),
        "truncated": data.draw(st.booleans()),
        "opening": data.draw(st.sampled_from(Opening if shipped.channels else [*Opening][:2])),
    }
    form = output_format(shipped)
    pieces = cut(text, data.draw(st.lists(st.integers(0, 10_000), max_size=8)))
    whole = summary(parse([text], form, **options))
    assert summary(parse(pieces, form, **options)) == whole
    assert summary(parse(list(text), form, **options)) == whole
    events = parse(pieces, form, **options)
    assert parse(pieces, form, **options, by_token=False) == events
    position = 0
    for event in events:  # spans are in order, never overlap, and stay within the tokens
        assert event.start >= position
        assert event.start <= event.end <= len(pieces)
        position = event.end


@FORMATS
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_the_arguments_of_every_complete_call_are_one_json_object(
    shipped: ShippedFormat, data: st.DataObject
) -> None:
    for _, arguments in found(parse([data.draw(_texts(shipped))], output_format(shipped)))[2]:
        assert isinstance(arguments, dict)


@FORMATS
@pytest.mark.parametrize("burst", [1, 2, 3, 5, 8, 13, 40, 200])
def test_calls_around_one_without_arguments_are_whole_in_any_burst(
    shipped: ShippedFormat, burst: int
) -> None:
    """Every family's first example calls a tool without arguments between two with some."""
    if not shipped.examples[0].calls:
        return
    text = shipped.examples[0].text
    pieces = [text[start : start + burst] for start in range(0, len(text), burst)]
    events = parse(pieces, output_format(shipped), opening=opening(shipped))
    assert found(events)[2] == [
        ("get_weather", {"city": "Oslo", "days": 3}),
        ("ping", {}),
        ("set_alarm", {"time": "07:30", "repeat": True, "tags": ["work", "early"]}),
    ]


@pytest.mark.parametrize("family", ["gemma4", "think", "minimax_m3"])
def test_reasoning_is_found_again_after_the_results_of_tools(family: str) -> None:
    """What the prompt holds of earlier reasoning changes nothing about the reasoning to come."""
    shipped = next(s for s in shipped_formats("reasoning") if family in s.names)
    form = output_format(shipped)
    example = shipped.examples[0]
    assert form.reasoning is not None
    opens, closes = form.reasoning.opens[0], form.reasoning.closes[0]
    earlier = f"{opens}\nEarlier.\n{closes}\nLet me look.<tool_result>18</tool_result>"
    for prompt in (earlier, f"{earlier}\n<next turn>\n", f"{opens} is how one thinks.\n"):
        start = opening_of(form, prompt, continues=False)
        for pieces in ([example.text], list(example.text)):
            said = found(parse(pieces, form, opening=start))
            assert said == (example.reasoning, example.content, [])


class _Lines:
    """How many lines of Python run inside the ``with``: work that no busy machine changes."""

    def __init__(self) -> None:
        self.count = 0

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        self.count += event == "line"
        return self._trace

    def __enter__(self) -> _Lines:
        self._before = sys.gettrace()
        gc.disable()  # its callbacks and finalizers, of whatever ran before, are Python too
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        gc.enable()


@FORMATS
def test_the_work_for_a_token_does_not_grow_with_the_output(shipped: ShippedFormat) -> None:
    example = shipped.examples[0]
    word = "Oslo" if example.calls else (example.content or example.reasoning).split()[0]

    def work(length: int) -> int:
        pieces = list(example.text.replace(word, "word < " * length))
        with _Lines() as lines:
            parse(pieces, output_format(shipped), opening=opening(shipped))
        return lines.count

    work(1)  # what a format computes once, also when this test runs alone
    short, middle, long = work(50), work(150), work(250)
    assert long - middle <= 1.05 * (middle - short)


@FORMATS
def test_a_long_argument_streams_while_it_arrives(shipped: ShippedFormat) -> None:
    """Output lags by at most a tag's length."""
    if not shipped.examples[0].calls:
        return
    long = "word " * 400
    text = shipped.examples[0].text.replace("Oslo", long)
    form = output_format(shipped)
    events = parse(list(text), form, opening=opening(shipped))
    deltas = [event for event in events if isinstance(event, ToolArgumentsDelta)]
    longest_tag = max(map(len, [*form.tags, "xxxx"]))
    said = "".join(event.text for event in deltas)
    assert long in said
    arrived = {event.end for event in deltas}
    start = text.index(long)
    gaps = [b - a for a, b in zip([start, *sorted(arrived)], sorted(arrived), strict=False)]
    inside = [gap for gap, end in zip(gaps, sorted(arrived), strict=False) if end > start]
    assert max(inside[:1800]) <= 2 * longest_tag


def test_a_tag_that_is_a_token_of_its_own_counts_only_as_that_token() -> None:
    form = detect_format("<think><tool_call>")
    call = '{"name": "f", "arguments": {}}'
    one = frozenset({"<tool_call>", "</tool_call>"})
    spelled = ["<tool", "_call>", call, "</tool", "_call>"]
    assert found(parse(spelled, form, one_token=one))[1:] == ("".join(spelled), [])
    token = ["<tool_call>", call, "</tool_call>"]
    assert found(parse(token, form, one_token=one))[1:] == ("", [("f", {})])
    # Nothing is held back for a tag that cannot come in pieces.
    events = parse(["a<tool", "b"], form, one_token=one)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["a<tool", "b"]
