"""Colons in an answer. Streamlit draws them in test_playground_in_browser.py."""

from __future__ import annotations

import pytest

from dashboard.directives import without_directives
from dashboard.markdown import plain_markdown


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("array:int[10]", r"array\:int[10]"),
        ("Use :foo[bar]", r"Use \:foo[bar]"),
        ("s[1:n[0]]", r"s[1\:n[0]]"),
        ("map:key{value}", r"map\:key{value}"),
        ("3:a{b} 1:2[0]", r"3\:a{b} 1\:2[0]"),
        ("color:red", r"color\:red"),
        ("12:30:red[x]", r"12:30\:red[x]"),
        ("时:红[x]", r"时\:红[x]"),
        ("::name", r":\:name"),
        (":::note\nx\n:::", "::\\:note\nx\n:::"),
        (r"\:red[x] \\:red[x]", r"\:red[x] \\\:red[x]"),
        (":material/home:", r"\:material\/home:"),
        (":streamlit:", r"\:streamlit:color[:]"),
        (":+1::100:", r"\:+1:color[:]\:100:color[:]"),
        (r":thumbs\_up:{x}", r"\:thumbs\_up:color[:]\{x}"),
        ("std::string::npos", r"std:\:string:color[:]\:npos"),
    ],
)
def test_what_streamlit_would_take_for_its_own_is_text(written: str, shown: str) -> None:
    assert without_directives(written) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Note: at 12:30, 12:30:45 or 9:00-10:30, 3:4 (a: b) :) :: ::: **So:** x",
        "http://localhost:8000/a:b[1] www.a.b/c:d",
        "<mailto:a@b.c> [x](mailto:a@b.c) [y](http://x/:tada:)",
        '<svg xlink:href="a:b" x:y>',
        "|:-:|:--|--:|",
    ],
)
def test_other_colons_and_addresses_stay_as_they_are(text: str) -> None:
    assert without_directives(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "`a:b[c]` and ``:tada:``",
        "```\na:b[c]\n::d\n```",
        "- a\n\n      b:c[d]",
        "$f:a{b}$ it is",
        "<div>\na:b\n</div>",
        "[r]:http://a/b:c\n\n[r]: http://a/d:e\n\n[r] x",
        "| x | y |\n|:-:|:--|\n| `a:b` | z |",
    ],
)
def test_code_formulas_definitions_and_blocks_of_html_stay_as_they_are(text: str) -> None:
    assert plain_markdown(text) == text


def test_an_answer_that_still_grows_has_its_colons_too() -> None:
    whole = "A ::b[c], :tada: `d:e` f:g"
    shown = r"A :\:b[c], \:tada:color[:] `d:e` f\:g"
    assert plain_markdown(whole) == shown
    assert plain_markdown(whole[:6]) == shown[:7]
    assert plain_markdown(whole[:15]) == shown[:17]
    assert plain_markdown(whole[:24]) == shown[: shown.index(" f") + 2]
