"""What a reading finds, as events with the tokens that made them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from service.formats import OutputFormat, PythonBody, ToolCallTags, named_format
from service.output.calls.source import NotACallError, Source
from service.output.events import Event, Finished, ToolArgumentsDelta, ToolCallBegin, ToolCallEnd
from service.output.reading import CallLog, Finds, OpenReading, Readers, ReasoningEnd, Subject
from service.output.spans import TokenSpans
from service.output.tags import Meaning, TagTable
from tests.service.output.calls.reading import drive

HERMES = OutputFormat(tool_call=ToolCallTags("<call>", "</call>"))
TOOLS: dict[str, Any] = {"f": None}


def new_log(*pieces: str) -> CallLog:
    spans = TokenSpans()
    for tokens, piece in enumerate(pieces, start=1):
        spans.push(len(piece), tokens)
    ids = (f"c{number}" for number in itertools.count())
    events: list[Event] = []
    return CallLog(events, spans, TOOLS, lambda: next(ids))


def finish(reading: OpenReading, *pieces: str) -> str:
    """The rest of the text."""
    return drive(reading.reader, reading.source, pieces, truncated=False)[1]


def test_a_call_becomes_events_whose_tokens_touch() -> None:
    pieces = ("<call>", '{"name": "f", "arguments": ', '{"a"', ": 1}", "}", "</call>")
    log = new_log(*pieces)
    readers = Readers(HERMES, log, looks_for_calls=True)
    reading = readers.calls(Source("", 6), "", 0, "<call>", Meaning.CALLS, None)
    assert not reading.found_calls
    assert finish(reading, *pieces[1:], " on") == " on"
    assert reading.found_calls
    begin, *arguments, end = [event for event in log.events if not isinstance(event, Finished)]
    assert begin == ToolCallBegin(0, "c0", "f", 0, 2)
    pieces_of_arguments = [one.text for one in arguments if isinstance(one, ToolArgumentsDelta)]
    assert "".join(pieces_of_arguments) == '{"a": 1}'
    assert isinstance(end, ToolCallEnd)
    for one, other in itertools.pairwise((begin, *arguments, end)):
        assert one.end == other.start
    assert end.end <= len(pieces)
    assert (log.begun, log.complete) == (1, 1)


@pytest.mark.parametrize("arguments", ['{"a": 1', "[1]", '{"a": 1e999}'])
def test_arguments_that_are_not_a_json_object_do_not_complete_a_call(arguments: str) -> None:
    log = new_log("x")
    finds = Finds(Source("x", 0), log)
    finds.begin("f", "given")
    finds.arguments(arguments)
    finds.end()
    assert [type(event) for event in log.events] == [ToolCallBegin, ToolArgumentsDelta]
    assert (log.begun, log.complete, finds.call_open) == (1, 0, False)


def test_a_reader_that_saw_no_end_makes_no_complete_call() -> None:
    log = new_log("x")
    finds = Finds(Source("x", 0), log)
    finds.begin("f")
    finds.arguments("{}")
    finds.end(whole=False)
    assert log.complete == 0
    assert not isinstance(log.events[-1], ToolCallEnd)


def test_where_only_known_tools_count_another_name_is_not_a_call() -> None:
    log = new_log("x")
    finds = Finds(Source("x", 0), log, known_only=True)
    with pytest.raises(NotACallError):
        finds.begin("g")
    assert (log.events, finds.calls) == ([], 0)


def test_a_header_says_what_follows_it() -> None:
    form = OutputFormat(channels=named_format("tool_calls", "openai").channels)
    readers = Readers(form, new_log("x"), looks_for_calls=True)
    reading = readers.header(Source("", 0), "", 0, "<|channel|>")
    assert finish(reading, "analysis<|message|>", "Hm") == "Hm"
    header = reading.finds.header
    assert header is not None
    assert (header.reasoning, header.shown) == (True, True)
    assert not reading.found_calls


def test_an_unfinished_mark_is_text_and_an_unfinished_header_behind_its_tag_is_not() -> None:
    form = OutputFormat(channels=named_format("tool_calls", "openai").channels)
    readers = Readers(form, new_log("x"), looks_for_calls=True)
    assert readers.header(Source("", 0), "", 9, "<|start|>").is_unfinished_tag
    assert not readers.header(Source("", 0), "", 0, "").is_unfinished_tag
    mark = readers.mark(Source("", 0), "", 3, ">")
    assert not mark.is_unfinished_tag
    assert finish(mark, " 0:[1]> on") == " on"


def test_further_calls_are_looked_for_only_where_one_began() -> None:
    form = OutputFormat(tool_call=ToolCallTags("", body=PythonBody(), bare="["))
    readers = Readers(form, new_log("x"), looks_for_calls=True)
    bare = readers.calls(Source("", 0), "", 0, "", Meaning.CALLS, None)
    assert bare.subject is Subject.CALLS
    assert readers.may_resume(bare, "[ f(a=")
    assert not readers.may_resume(bare, "[1] is a footnote")
    tagged = Readers(HERMES, new_log("x"), looks_for_calls=True)
    opened = tagged.calls(Source("", 6), "", 0, "<call>", Meaning.CALLS, None)
    assert tagged.may_resume(opened, "anything")
    assert not tagged.may_resume(tagged.mark(Source("", 0), "", 1, ">"), "anything")


def test_in_what_may_be_a_call_reasoning_ends_after_its_tag_and_white_space() -> None:
    table = TagTable({"</think>": Meaning.TEXT, "<think>": Meaning.NOTHING}, {"</think>"})
    spans = TokenSpans()
    end = ReasoningEnd(table, spans)
    offset = 0
    steps = [
        *(("{<think>", 1), ("<think>", 7), ("</think", 1), (">", 1)),  # spelled out: just text
        *(("</think>", 8), ("\n b", 2), ("b", 0), (" ", 0)),
    ]
    for tokens, (text, size) in enumerate(steps, start=1):
        spans.push(len(text), tokens)
        assert end.part(text, "", offset) == size
        end.push(text, offset)
        offset += len(text)


def test_white_space_belongs_to_the_answer_if_text_of_it_waits() -> None:
    end = ReasoningEnd(TagTable({"</think>": Meaning.TEXT}, set()), TokenSpans())
    end.push("a</thi", 0)
    end.push("nk>\n", 6)
    assert end.part("\nb", "", 10) == 1
    assert end.part("\nb", "a", 11) == 0
