from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dashboard.words import age, count, duration, number, percent, plain_markdown, text_only
from tests.examples import examples

# With raw HTML and without: what is not HTML to one is text to the other.
PARSERS = [MarkdownIt("commonmark"), MarkdownIt("gfm-like", {"html": False, "linkify": False})]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0.0, "0 ms"),
        (0.00085, "0.850 ms"),
        (0.0084, "8.40 ms"),
        (0.12, "120 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (2.5, "2.50 s"),
        (3.0, "3.00 s"),
        (75.0, "75.0 s"),
        (1250.0, "1,250 s"),
    ],
)
def test_durations_are_milliseconds_or_seconds(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *((0, "0"), (0.0004, "0.000"), (0.25, "0.250"), (9.3, "9.30"), (9.996, "10.0")),
        *((42, "42.0"), (99.6, "99.6"), (99.96, "100"), (1250.4, "1,250"), (math.nan, "–")),
    ],
)
def test_measured_numbers_have_three_digits(value: float, words: str) -> None:
    assert number(value) == words


def test_what_a_model_does_not_take_is_said_in_words() -> None:
    assert text_only(["image", "video"]) == "text only, no image or video"
    assert text_only([]) == ""


def test_what_is_counted_is_a_whole_number() -> None:
    assert (count(7), count(1250), count(math.nan)) == ("7", "1,250", "–")


def test_fewer_digits_where_fewer_are_known() -> None:
    assert (duration(2.82, 2), duration(0.0157, 2), duration(33.0, 2)) == ("2.8 s", "16 ms", "33 s")


def test_a_number_that_changes_from_second_to_second_keeps_its_width() -> None:
    for low, high in ((1.0, 9.99), (10.0, 99.9), (100.0, 999.0)):
        assert len(number(low)) == len(number(high)) == len(number((low + high) / 2))


def test_shares_are_percent() -> None:
    assert (percent(0.005), percent(0.5), percent(1), percent(math.nan)) == (
        "0.500 %",
        "50.0 %",
        "100 %",
        "–",
    )


def test_dollars_in_an_answer_are_money_and_not_a_formula() -> None:
    assert plain_markdown("It costs $5 or $6.") == r"It costs \$5 or \$6."


def test_an_image_in_an_answer_is_not_fetched() -> None:
    assert plain_markdown("![x](http://a/b.png)") == r"!\[x](http://a/b.png)"


def test_code_in_an_answer_stays_as_it_is() -> None:
    assert plain_markdown("Run:\n\n    echo $HOME\n    - [ ] todo") == (
        "Run:\n\n    echo $HOME\n    - [ ] todo"
    )
    written = "- a\n\n      ![x](y)\n\nThen `![a](b)` and ``$` ![c](d)`` (`!`)."
    assert plain_markdown(written) == written
    assert plain_markdown("# As `![a](b)`\n\n![`![a](b)`]") == "# As `![a](b)`\n\n!\\[`!\\[a](b)`]"
    code = "```sh\necho $HOME ![x](y)\n```"
    assert plain_markdown(f"$1\n{code}\nand `$x` $2") == f"\\$1\n{code}\nand `$x` \\$2"


@pytest.mark.parametrize(
    "before",
    [
        "1. First:\n\n   ```bash\n   echo $HOME\n   ```\n\n2. Then.",
        "- a\n  - b\n    ~~~\n    $x\n    ~~~\n  c",
        "> ```\n> $x\n> ```",
        "<b>Note</b>\n\nThen:",
        "<details>\n\n```\n$x\n```\n</details>",
        "- ```\n  $x",
    ],
)
def test_code_stays_as_it_is_within_lists_and_after_them(before: str) -> None:
    code = "```bash\nexport PATH=$PATH:/opt\nlist=![x]\n```"
    assert plain_markdown(f"{before}\n\n{code}\n\n$5") == f"{before}\n\n{code}\n\n\\$5"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("The waves\na boat\nfor the wind", "The waves  \na boat  \nfor the wind"),
        ("> one\n> two", "> one  \n> two"),
        ("- one\n  more\n- two", "- one  \n  more\n- two"),
        ("one\\\ntwo  \nthree", "one\\\ntwo    \nthree"),
        ("one `a\nb` two\nthree", "one `a\nb` two  \nthree"),
        ("``a`\nb`` \\`a\nb`", "``a`\nb`` \\`a  \nb`"),
        ("- one `a\n- two` b\n  c", "- one `a\n- two` b  \n  c"),
        *(
            (text, text)
            for text in (
                "# Head\nText\n\nMore",
                "Head\n===",
                "| a |\n|---|\n| 1 |\n| 2 |",
                "```\na\nb\n```",
                "Code:\n\n    a\n    b",
                "- a\n- b\n\n1. c\n2. d",
            )
        ),
    ],
)
def test_lines_end_where_their_writer_ended_them(written: str, shown: str) -> None:
    assert plain_markdown(written) == shown


def test_tasks_have_boxes_that_are_text() -> None:
    written = "- [ ] a\n- [x] b\n\n1. [X] c\n\n> * [ ] d\n\n- [x](http://a)\n\n```\n- [ ] e\n```"
    shown = "- ☐ a\n- ☑ b\n\n1. ☑ c\n\n> * ☐ d\n\n- [x](http://a)\n\n```\n- [ ] e\n```"
    assert plain_markdown(written) == shown


def test_a_task_that_is_the_first_item_of_an_item_has_a_box_that_is_text() -> None:
    written = "- - [ ] a\n  - [x] b\n1. > * [ ] c\n-\n  [ ] d\n- a\n  [ ] e"
    shown = "- - ☐ a\n  - ☑ b\n1. > * ☐ c\n-\n  ☐ d\n- a  \n  [ ] e"
    assert plain_markdown(written) == shown


def test_a_dollar_that_is_escaped_already_stays_so() -> None:
    assert plain_markdown(r"\$5 and \\$6") == r"\$5 and \\\$6"


PIECES = st.lists(
    st.sampled_from(
        [
            *("![x](http://a/b.png)", "![x][r]", "[r]: http://a/b.png", "![r]", "!", "[", "]"),
            *("(http://a)", "\\", "`", "``", "```", "````", "~~~", "~~~~", "$", "$$"),
            *(
                "<!--",
                "-->",
                "\n:::",
                "\n:::x\n",
                "\n::x\n",
                "[^1]: ",
                "\n:-\n",
                "https://a/",
                "`\n",
            ),
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


@settings(max_examples=examples(500))
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
@example("<div>\n```\n\n![x](http://a/2.png)\n```")
@example("<b\n```\n\n![x](http://a/2.png)\n```")
@example("\\[\n- a\n\\]\n    ```\n  ![x](http://a/2.png)")
@example("$$\n```\n$$\n![x](http://a/2.png)\n```")
@example("[a![b]: http://a\n```\n![x](http://a/2.png)")
@example("[^1]: a\n\n    ![x](http://a/2.png)")
@example("<`a> `![x](http://a/2.png)`")
@example("[a](`) `![x](http://a/2.png)`")
@example("https://a/` ![x](http://a/2.png)`")
@example("a `\n:-\n` ![x](http://a/2.png) ` `")
def test_no_text_is_an_image_to_a_markdown_parser(text: str) -> None:
    shown = plain_markdown(text)
    for parser in PARSERS:
        tokens = parser.parse(shown)
        inline = [child for token in tokens for child in token.children or ()]
        assert not [token for token in (*tokens, *inline) if token.type == "image"]


@pytest.mark.parametrize(
    "text",
    [
        "-|-\n1. a\n-|-\n    ![x](http://a/2.png)",
        "[^1]: \n::x[a`\n`![x](http://a/2.png)`",
        "[^1]: a\n\n    ![x](http://a/2.png)",
        "[r]: http://a\n    ![x](http://a/2.png)",
        "https://a/` ![x](http://a/2.png)`",
        "a `\n:-\n` ![x](http://a/2.png) ` `",
        "a `\n::x\n` ![x](http://a/2.png) ` `",
        "<a ` ![x](http://a/2.png)`",
    ],
)
def test_what_is_code_to_one_parser_and_an_image_to_the_browsers_is_not_fetched(text: str) -> None:
    assert "![" not in plain_markdown(text)


def test_a_code_block_that_is_still_growing_is_code() -> None:
    assert plain_markdown("```sh\necho $HO") == "```sh\necho $HO"


_ALIGNED = r"$$\displaystyle \begin{aligned} a \end{aligned}$$"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (r"So \(x^2\) it is", "So $x^2$ it is"),
        (r"\[ a = b \]", r"$$\displaystyle a = b$$"),
        ("$$a = b$$", r"$$\displaystyle a = b$$"),
        ("\\[\na\n= b\n\\]", r"$$\displaystyle a = b$$"),
        ("So\n$$\na \\\\[2pt]\n+ b\n$$\nis", "So  \n$$\\displaystyle a \\\\[2pt] + b$$  \nis"),
        ("1. So\n\n   $$\n   a\n   $$\n\n2. b", "1. So\n\n   $$\\displaystyle a$$\n\n2. b"),
        ("> \\[\n> a\n> \\]", r"> $$\displaystyle a$$"),
        ("$$\\begin{align*}\na\n\\end{align*}$$", _ALIGNED),
        (r"$$a \tag{1}$$", r"$$\displaystyle a \quad(\text{1})$$"),
        ("$$\na\n\nIt costs $5 so $$b$$", "\\$\\$  \na\n\nIt costs \\$5 so $$\\displaystyle b$$"),
        ("\\[ a\n\nand \\(b\\)", "\\[ a\n\nand $b$"),
        ("$a_1\nand_2$", "\\$a_1  \nand_2\\$"),
        ("where $x$ is", "where $x$ is"),
        (r"$\frac{1}{2}$.", r"$\frac{1}{2}$."),
        ("$5 and $6", r"\$5 and \$6"),
        ("from $5 to 10$", r"from \$5 to 10\$"),
        ("$HOME/$USER", r"\$HOME/\$USER"),
        ("US$5 + A$6 = $", r"US\$5 + A\$6 = \$"),
        ("`$x$`", "`$x$`"),
        (r"\(![a](http://x)\)", r"$!\[a](http://x)$"),
    ],
)
def test_formulas_are_told_from_money(written: str, shown: str) -> None:
    assert plain_markdown(written) == shown


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 s"),
        (59.9, "59 s"),
        (60, "1 min 0 s"),
        (1929, "32 min 9 s"),
        (3600, "1 h 0 min"),
        (86_399, "23 h 59 min"),
        (200_000, "2 d 7 h"),
    ],
)
def test_ages(seconds: float, words: str) -> None:
    assert age(seconds) == words
