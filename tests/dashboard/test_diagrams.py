"""Fences that Streamlit would draw, as code; test_browser.py has them in a browser."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dashboard.diagrams import without_diagrams
from dashboard.markdown import plain_markdown
from tests.examples import examples

# As Streamlit finds the language of a fence: StreamlitMarkdown.*.js.
_LANGUAGE = re.compile(r"language-(\w+)", re.ASCII)


def drawn(markdown: str) -> list[str]:
    """The diagrams that Streamlit draws."""
    fences = [one for one in MarkdownIt("commonmark").parse(markdown) if one.type == "fence"]
    languages = [_LANGUAGE.search(f"language-{(one.info.split() or [''])[0]}") for one in fences]
    return [
        fence.content
        for fence, language in zip(fences, languages, strict=True)
        if language and language[1].lower() == "mermaid"
    ]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("```mermaid\na\n```", "```\\mermaid\na\n```"),
        ("~~~~ Mermaid title\na\n~~~~", "~~~~ \\Mermaid title\na\n~~~~"),
        ("- a\n\n  ```MERMAID\n  a\n  ```", "- a\n\n  ```\\MERMAID\n  a\n  ```"),
        ("> 1. ```mermaid,x\n> a", "> 1. ```\\mermaid,x\n> a"),
        ("```-language-mermaid\na\n```", "```-language-\\mermaid\na\n```"),
        ("```mer&#109;aid\na\n```", "```mer\\&#109;aid\na\n```"),
        ("~~~`` ~~~mermaid\na\n~~~", "~~~`` ~~~\\mermaid\na\n~~~"),
        *(
            (text, text)
            for text in (
                "```python\nmermaid\n```",
                "Begin it with ` ```mermaid ` or ```` ```mermaid ````.",
                "Mermaid draws ``` code ``` well.",
                "Mermaid is A&B.",
            )
        ),
    ],
)
def test_the_fence_of_a_diagram_is_that_of_code(written: str, shown: str) -> None:
    assert without_diagrams(written, ()) == shown
    assert plain_markdown(written) == shown
    assert drawn(shown) == []


def test_a_fence_within_a_sample_of_markdown_stays_as_it_is() -> None:
    sample = "````markdown\n# Read me\n\n```mermaid\na\n```\n````"
    assert plain_markdown(sample) == sample
    # A fence that has not ended, as in an answer that still grows.
    assert plain_markdown("````markdown\n```mermaid") == "````markdown\n```mermaid"


@pytest.mark.parametrize(
    "text",
    [
        ":::x\n```\n:::\n```mermaid\na\n```",
        "a|b\n-|-\n```\n```mermaid\na",
        "[^1]: ```\n\n```\n```mermaid\na",
        "<div>\n```\n\n```mermaid\na\n```",
    ],
)
def test_a_fence_of_which_parsers_differ_is_code(text: str) -> None:
    assert "```mermaid" not in plain_markdown(text)


PIECES = st.lists(
    st.sampled_from(
        [
            *("mermaid", "Mermaid", "mer", "maid", "&#109;", "&#x4D;", "&", "language-", "-", "\\"),
            *("```", "````", "~~~", "~~~~", "`", "\n```", "\n~~~"),
            *("\n```mermaid\n", "\n~~~mermaid"),
            *("\n", "\n\n", "\r", "\u2028", "\x0b", "\x85", "\xa0", "\t", "    ", "  ", " "),
            *("> ", "- ", "1. ", "* ", "<div>", "</div>", "<!--", "-->", "<pre>"),
            *("[a]: ", "[^1]: ", "$$", "\\[", "\\]", "$", "x", "#", "---", "|", "-|-"),
            *(":::", "[", "](", ")", "{", "}"),
        ]
    ),
    max_size=24,
).map("".join)


@settings(max_examples=examples(500))
@given(PIECES)
@example("$$\n```\n$$\n```mermaid")
@example("\\[\n```\n\\]mermaid")
@example("```\\mermaid")
@example("```\\&#109;ermaid")
@example("<!--\n```\n-->\n```mermaid\n```")
def test_no_text_is_a_diagram(text: str) -> None:
    assert drawn(plain_markdown(text)) == []


@settings(max_examples=examples(200))
@given(PIECES)
def test_what_was_written_can_still_be_read(text: str) -> None:
    shown = without_diagrams(text, ())
    assert html.unescape(shown).replace("\\", "") == html.unescape(text).replace("\\", "")
