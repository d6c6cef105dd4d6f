"""Which tags mean something where, and how they are found in text that may end inside one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.formats import OutputFormat, ReasoningTags, ToolCallTags, named_format
from service.output.calls.source import Stop
from service.output.spans import TokenSpans
from service.output.tags import FormatTags, Meaning, TagTable

FORM = OutputFormat(
    ReasoningTags("<think>", "</think>"),
    ToolCallTags("<call>", "</call>", around=("<calls>",)),
    ignored=("<end>",),
)
TOOLS: dict[str, Any] = {"f": None}
WHERE: dict[str, bool] = {"in_reasoning": False, "calls": True, "malformed": False}


def meanings(tools: dict[str, Any] | None = TOOLS, **where: bool) -> dict[str, Meaning]:
    return FormatTags(FORM, tools).table(**{**WHERE, **where}).meanings


def pushed(*pieces: str) -> TokenSpans:
    spans = TokenSpans()
    for tokens, piece in enumerate(pieces, start=1):
        spans.push(len(piece), tokens)
    return spans


def test_a_tag_means_what_is_open_lets_it_mean() -> None:
    outside, inside = meanings(), meanings(in_reasoning=True)
    assert outside["<think>"] is Meaning.REASONING
    assert outside["</think>"] is Meaning.NOTHING  # it closes what is not open
    assert inside["</think>"] is Meaning.TEXT
    assert inside["<think>"] is Meaning.NOTHING
    for table in (outside, inside):
        assert table["<call>"] is Meaning.CALLS
        assert table["<calls>"] is table["<end>"] is Meaning.NOTHING


@pytest.mark.parametrize("where", [{"calls": False}, {"tools": None}])
def test_if_calls_are_not_allowed_their_tags_are_text(where: dict[str, Any]) -> None:
    assert meanings(**where).keys() == {"<think>", "</think>", "<end>"}


def test_behind_a_malformed_call_another_may_begin_without_its_tag() -> None:
    assert meanings(malformed=True)['{"name":'] is Meaning.NEXT_CALL
    assert '{"name":' not in meanings()


def test_a_header_begins_where_a_family_has_messages() -> None:
    form = OutputFormat(channels=named_format("tool_calls", "openai").channels)
    table = FormatTags(form, TOOLS).table(**WHERE)
    assert form.channels is not None
    assert {table.meanings[tag] for tag in form.channels.opens} == {Meaning.HEADER}


def table(*tags: str, one_token: frozenset[str] = frozenset()) -> TagTable:
    return TagTable(dict.fromkeys(tags, Meaning.NOTHING), one_token)


def test_the_first_tag_counts_and_the_longest_of_those_that_begin_together() -> None:
    text = "a <b <bc> <d>"
    found = table("<d>", "<b", "<bc>").first(text, 0, pushed(text))
    assert found == (2, "<b")
    assert table("<b", "<bc>").first("x<bc>", 0, pushed("x<bc>")) == (1, "<bc>")
    assert table().first(text, 0, pushed(text)) is None


def test_a_tag_that_is_a_token_is_text_where_several_tokens_spell_it() -> None:
    tags = table("<call>", one_token=frozenset({"<call>"}))
    assert tags.first("a<call>", 0, pushed("a", "<call>")) == (1, "<call>")
    assert tags.first("a<call>", 0, pushed("a", "<ca", "ll>")) is None
    spelled_first = pushed("<ca", "ll>", "<call>")
    assert tags.first("<call><call>", 0, spelled_first) == (6, "<call>")
    assert tags.possible("a<cal") == 0  # it never comes in pieces


def test_tags_of_one_meaning_are_found_among_others() -> None:
    tags = TagTable({"<a>": Meaning.NOTHING, "</a>": Meaning.TEXT}, set())
    text = "<a> </a> </a>"
    assert tags.after(Meaning.TEXT, text, 0, pushed(text)) == 8
    assert tags.after(Meaning.CALLS, text, 0, pushed(text)) is None


def test_white_space_waits_only_for_tags_and_not_if_it_may_begin_one() -> None:
    assert table("<b").holds_space
    assert not table().holds_space
    assert not table("<b", "\n\nUser:").holds_space


@given(text=st.text("<calx> \n", max_size=12))
def test_a_possible_tag_is_held_with_the_white_space_before_it(text: str) -> None:
    tags = table("<call>", "<x")
    size = tags.possible(text)
    held = text[len(text) - size :]
    words = held.strip()
    assert not words or any(tag.startswith(words) and tag != words for tag in tags.meanings)
    assert not text[: len(text) - size][-1:].isspace()
    # No longer end of the text could begin one.
    for length in range(1, 6):
        end = text[-length:]
        if len(end) == length and end in ("<", "<c", "<ca", "<cal", "<call"):
            assert held.endswith(end)
    if tags.is_plain(text):
        assert size == 0
        assert tags.first(text, 0, pushed(text or " ")) is None


def test_at_the_end_half_a_tag_is_markup_and_a_word_is_not() -> None:
    tags = table("<call>", "functools[")
    assert tags.unfinished("so <cal") == len(" <cal")
    assert tags.unfinished("so func") == 0
    assert tags.unfinished("a <") == 0


def test_a_call_without_an_end_of_its_own_stops_at_the_formats_tags() -> None:
    tags = FormatTags(FORM, TOOLS, frozenset({"<call>", "</call>"}), frozenset({"</call>"}))
    stops = tags.stops(pushed("<call>", "<ca", "ll>", "</call>"))
    assert set(stops.tags) == {"<call>", "</call>", "<calls>"}
    assert stops.kind("<call>", 0) is Stop.PERHAPS
    assert stops.kind("<call>", 6) is Stop.TEXT
    assert stops.kind("</call>", 12) is Stop.CERTAIN
    assert stops.kind("<calls>", 0) is Stop.PERHAPS
    assert FormatTags(FORM, None).stops(TokenSpans()).tags == ()


def test_texts_of_tokens_are_remembered_with_their_json_if_no_tag_can_begin_in_them() -> None:
    table = FormatTags(FORM, TOOLS).table(**WHERE)
    assert [table.learn(text) for text in ("w\u00f6rd", "a <", "space ")] == [True, False, False]
    assert table.plain["w\u00f6rd"] == '"w\u00f6rd"'.encode()
    assert not {"a <", "space "} & table.plain.keys()
    assert FormatTags(FORM, TOOLS).table(**WHERE).plain is table.plain


def test_what_depends_on_its_neighbours_or_is_no_token_is_not_remembered() -> None:
    table = FormatTags(FORM, TOOLS).table(**WHERE)
    assert table.learn("\ufffd")  # perhaps a part of a character
    assert table.is_plain("several tokens")
    assert not {"\ufffd", "several tokens"} & table.plain.keys()


def test_a_table_whose_tags_the_client_may_choose_shares_nothing() -> None:
    tables = [FormatTags(FORM, TOOLS).table(**{**WHERE, "malformed": True}) for _ in range(2)]
    assert tables[0].plain is not tables[1].plain
