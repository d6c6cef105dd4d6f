from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dashboard.words import duration, number, percent, plain_markdown

# With raw HTML and without: what is no HTML to one is text to the other.
PARSERS = [MarkdownIt("commonmark"), MarkdownIt("gfm-like", {"html": False, "linkify": False})]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0.00085, "850 µs"),
        (0.0084, "8.4 ms"),
        (0.12, "120 ms"),
        (2.5, "2.5 s"),
        (3.0, "3 s"),
        (75.0, "75 s"),
    ],
)
def test_durations_have_a_fitting_unit(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (0.25, "0.2"), (42, "42"), (99.6, "100"), (1250.4, "1,250"), (math.nan, "–")],
)
def test_numbers_are_short(value: float, words: str) -> None:
    assert number(value) == words


def test_shares_are_percent() -> None:
    assert (percent(0.005), percent(0.5), percent(1), percent(math.nan)) == (
        "0.5 %",
        "50 %",
        "100 %",
        "–",
    )


def test_dollars_in_an_answer_are_money_and_not_a_formula() -> None:
    assert plain_markdown("It costs $5 or $6.") == r"It costs \$5 or \$6."


def test_an_image_in_an_answer_is_not_fetched() -> None:
    assert plain_markdown("![x](http://a/b.png)") == r"!\[x](http://a/b.png)"


def test_code_in_an_answer_stays_as_it_is() -> None:
    code = "```sh\necho $HOME ![x](y)\n```"
    assert plain_markdown(f"$1\n{code}\nand `$x` $2") == f"\\$1\n{code}\nand `$x` \\$2"


def test_a_dollar_that_is_escaped_already_stays_so() -> None:
    assert plain_markdown(r"\$5 and \\$6") == r"\$5 and \\\$6"


PIECES = st.lists(
    st.sampled_from(
        [
            *("![x](http://a/b.png)", "![x][r]", "[r]: http://a/b.png", "![r]", "!", "[", "]"),
            *("(http://a)", "\\", "`", "``", "```", "````", "~~~", "~~~~", "$", "$$"),
            *("<!--", "-->", "\n:::", "\n:::x\n"),
            *("<pre>", "</pre>", "<div>", "<b", "> ", "- ", "1. ", "* ", "+ ", "    ", "  ", " "),
            *("\t", "\n", "\n\n", "\r", "\r\n", "\u2028", "\x0b", "\x0c", "\x1c", "\x85", "\xa0"),
            *(
                "x",
                "#",
                "|",
                "---",
                "===",
                "&#33;",
                "&lbrack;",
                "\n```",
                "\n~~~",
                "\n```\n",
                ":red[",
            ),
        ]
    ),
    max_size=24,
).map("".join)


@settings(max_examples=500)
@given(PIECES)
@example("`\\`![x](http://a/2.png)`")
@example("\\`![x](http://a/2.png)\\`")
@example("x\n\n    ```\n\n![x](http://a/2.png)\n\n    ```")
@example("    ```\n```\n![x](http://a/2.png)\n```")
@example("- ```\n\n![x](http://a/2.png)\n\n```\n![x](http://a/2.png)")
@example("<!--\n```\n-->\n![x](http://a/2.png)\n```")
@example("````\n```\n````\n![x](http://a/2.png)")
@example("```\n```` x\n```\n![x](http://a/2.png)")
@example("x\u2028```\n![x](http://a/2.png)")
@example("``` `\n![x](http://a/2.png)")
def test_no_text_is_an_image_to_a_markdown_parser(text: str) -> None:
    shown = plain_markdown(text)
    for parser in PARSERS:
        tokens = parser.parse(shown)
        inline = [child for token in tokens for child in token.children or ()]
        assert not [token for token in (*tokens, *inline) if token.type == "image"]


def test_a_code_block_that_is_still_growing_is_code() -> None:
    assert plain_markdown("```sh\necho $HO") == "```sh\necho $HO"
