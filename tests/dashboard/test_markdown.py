"""Model output as Markdown: no image is fetched, code stays as it is, dollars are money."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dashboard.markdown import plain_label, plain_markdown, plain_name
from tests.examples import examples

# With raw HTML and without: what is not HTML to one is text to the other.
PARSERS = [MarkdownIt("commonmark"), MarkdownIt("gfm-like", {"html": False, "linkify": False})]


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
        "a|b\n-|-\n`![x](http://a/2.png)|`",
        "`![x](http://a/2.png)|`\n-|-",
        "- a|b\n-|-\n\n    ![x](http://a/2.png)",
        "- a|b\n-|-\n  ```\n![x](http://a/2.png)",
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


@pytest.mark.parametrize(
    "name",
    [
        "![x](http://a/2.png)",
        "~~~ ![x](http://a/2.png)",
        "```\n![x](http://a/2.png)\n```",
        "a\n\n    ![x](http://a/2.png)",
    ],
)
def test_no_name_within_a_label_is_an_image(name: str) -> None:
    label = plain_label(f"Result of {name}")
    assert "\n" not in label
    for parser in PARSERS:
        tokens = [child for token in parser.parse(label) for child in token.children or ()]
        assert "image" not in [token.type for token in tokens]


def test_a_label_is_one_line_that_is_cut_where_it_is_too_long() -> None:
    assert plain_label("Result of\n $x") == r"Result of \$x"
    assert plain_label("a" * 2_000) == "a" * 999 + "…"


@pytest.mark.parametrize(
    "name",
    [
        "**evil** :red[model] $x^2$ [l](http://evil)",
        r"\(x\) \[y\]",
        "`quoted`",
        "two ``ticks",
        ":tada: <b>bold</b> &amp; # *",
        "org/model_v2-7b",
    ],
)
def test_a_name_in_a_sentence_is_as_it_is_written(name: str) -> None:
    sentence = plain_label(f"Ask {plain_name(name)} something.")
    for parser in PARSERS:
        [inline] = [token for token in parser.parse(sentence) if token.type == "inline"]
        parts = [(token.type, token.content) for token in inline.children or ()]
        assert parts == [("text", "Ask "), ("code_inline", name), ("text", " something.")]


def test_no_name_is_nothing() -> None:
    assert plain_name("") == ""


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
