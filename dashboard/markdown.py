"""Model output as Markdown for Streamlit."""

from __future__ import annotations

import bisect
import itertools
import re
import textwrap
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from dashboard.diagrams import DRAWN, without_diagrams
from dashboard.directives import without_directives

# A list of tasks, whose boxes the renderer draws as fields without a label. A task may be the first
# item of a list that is an item itself.
_MARKER = r"(?:[-*+]|\d{1,9}[.)])"
_TASK = re.compile(
    rf"(?m)^([ \t>]*(?:{_MARKER}[ \t][ \t>]*)*{_MARKER}(?:[ \t]+|[ \t]*\n[ \t>]+))"
    r"\[([ xX])\](?=[ \t])"
)
_BACKTICKS = re.compile(r"(?<!\\)(\\*)(`+)")
_DOLLAR = re.compile(r"(?<!\\)((?:\\\\)*)\$")
# A formula ends in its paragraph: one whose end has not come yet does not take what follows.
_SAME_PARAGRAPH = r"\n(?![ \t>]*\n)"
# A formula in \( \), \[ \], $$ $$, or in $ $ if it cannot be money: no letter or digit outside the
# dollars, no space at their insides, and a sign within that prices do not have.
_MATH = re.compile(
    rf"(?<!\\)\\\((?P<inline>(?:[^$\n\\]|\\[^$\n()]|{_SAME_PARAGRAPH}){{1,2000}})\\\)"
    rf"|(?<!\\)\\\[(?P<block>(?:[^$\n\\]|\\[^$\n\[\]]|{_SAME_PARAGRAPH}){{1,2000}})\\\]"
    rf"|\$\$(?P<double>(?:[^$\n]|{_SAME_PARAGRAPH}){{1,2000}})\$\$"
    r"|(?<![\\$\w])\$(?P<single>[A-Za-z]"
    r"|(?=[^$\n]*[\\^_=+{])[^\s$](?:[^$\n]{0,398}[^\s$\\])?)\$(?![\w$])"
)
# What the renderer takes only where a formula is a block. Ours are part of their paragraphs, so
# that they cannot change where code begins and ends.
_ONLY_IN_BLOCKS = (
    (re.compile(r"\\(begin|end)\{(?:align|equation)\*?\}"), r"\\\1{aligned}"),
    (re.compile(r"\\(begin|end)\{gather\*?\}"), r"\\\1{gathered}"),
    (re.compile(r"\\tag\*?\{([^{}]*)\}"), r"\\quad(\\text{\1})"),
)
_MOST_LABEL = 1_000  # characters
# Find blocks as the renderer does. Only what is code to both is code for certain.
_WITH_HTML, _WITHOUT_HTML = (
    MarkdownIt("commonmark", {"html": html}).enable("table").disable(["inline", "text_join"])
    for html in (True, False)
)
# Begins and ends Streamlit's own blocks, also inside a fence.
_STREAMLITS_OWN = ":::"
# In definitions of links and footnotes, of which parsers differ on what follows them.
_DEFINES = "]:"
# What can begin anything in a paragraph, other than code, that includes a backtick or ends the
# paragraph: tags, escapes, formulas, tables, links and addresses, Streamlit's own elements.
_MAY_INCLUDE_BACKTICKS = re.compile(r"[<\\$|\[\]{}]|::|:-|-:|://|www\.", re.IGNORECASE)


def plain_markdown(text: str) -> str:
    """Model output for a Markdown renderer: a formula is one, any other dollar sign is money, a
    line ends where its writer ended it, and nothing is fetched from addresses that the model
    writes, neither an image nor what a diagram refers to.

    Every image begins with ``![``, which is broken up everywhere but in code, and every diagram
    with a fence, whose language is broken up. What may not be code to the renderer shows the
    backslash: if we took it for code, it would be fetched.
    """
    # As Streamlit does it itself, so that columns and lines are those that it will see.
    text = textwrap.dedent(text.replace("\r\n", "\n").replace("\r", "\n")).strip()
    text = _with_formulas_outside_code(text)
    tokens = _WITH_HTML.parse(text)
    spans = _code_spans(text, tokens)
    ends = _ends_within_paragraphs(text, tokens, spans)
    lines = _without_images(text, tokens, spans).split("\n")
    for number in ends:
        if not lines[number].endswith("\\"):
            lines[number] += "  "
    return without_diagrams("\n".join(lines), _within_fences(text, tokens))


def plain_label(text: str) -> str:
    """Text for the label of a widget, or for a sentence with a name from elsewhere: one
    line of it, cut where it is too long.

    The whole label, not the name alone: where a name begins decides whether it is code.
    """
    line = " ".join(text.split())
    return plain_markdown(line if len(line) <= _MOST_LABEL else f"{line[: _MOST_LABEL - 1]}…")


def plain_name(name: str) -> str:
    """A name from elsewhere, for a sentence: as code, in which no character is formatting. A
    backslash before each sign would not do, as ``\\(`` and ``\\[`` begin formulas."""
    line = " ".join(name.split())
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    edge = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{edge}{line}{edge}{fence}" if line else ""


def _ends_within_paragraphs(
    text: str, tokens: Sequence[Token], spans: Sequence[tuple[int, int]]
) -> set[int]:
    """The lines that end within a paragraph, which a renderer would join, and not within code."""
    within: set[int] = set()
    for before, token in itertools.pairwise(tokens):
        if before.type == "paragraph_open" and token.map is not None:
            within.update(range(token.map[0], token.map[1] - 1))
    starts = _line_starts(text)
    for begin, end in spans:
        within.difference_update(range(_line_at(starts, begin), _line_at(starts, end)))
    return within


def _without_images(text: str, tokens: Sequence[Token], spans: Sequence[tuple[int, int]]) -> str:
    if "![" not in text:
        return text
    others = _WITHOUT_HTML.parse(text) if "<" in text else tokens
    lines: set[int] = set()
    certain: list[tuple[int, int]] = []
    if _STREAMLITS_OWN not in text and not _has_table((*tokens, *others)):
        lines = _lines_of(tokens, "fence") & _lines_of(others, "fence")
        if _DEFINES not in text:
            lines |= _indented_after_blank(text, tokens) & _indented_after_blank(text, others)
            certain = _certain(text, spans, _paragraphs(tokens) & _paragraphs(others))
    starts = _line_starts(text)

    def broken_up(found: re.Match[str]) -> str:
        at = found.start()
        following = bisect.bisect_right(certain, at, key=_begin)
        is_inline_code = following > 0 and at < certain[following - 1][1]
        return found[0] if is_inline_code or _line_at(starts, at) in lines else r"!\["

    return re.sub(r"!\[", broken_up, text)


def _has_table(tokens: Sequence[Token]) -> bool:
    """Renderers differ on where tables begin, and cells end within backticks."""
    return any(token.type == "table_open" for token in tokens)


def _within_fences(text: str, tokens: Sequence[Token]) -> set[int]:
    """The lines within fences, except their first, that are code to any renderer."""
    if not DRAWN.search(text):
        return set()
    others = _WITHOUT_HTML.parse(text) if "<" in text else tokens
    if _STREAMLITS_OWN in text or _DEFINES in text or _has_table((*tokens, *others)):
        return set()
    fences = (
        {token.map[0]: token.map[1] for token in one if token.type == "fence" and token.map}
        for one in (tokens, others)
    )
    same = set.intersection(*(set(one.items()) for one in fences))
    return {line for first, last in same for line in range(first + 1, last)}


def _indented_after_blank(text: str, tokens: Sequence[Token]) -> set[int]:
    """The lines of indented code that can continue nothing: neither a paragraph nor a table."""
    before = ["", *text.split("\n")]
    maps = filter(None, (token.map for token in tokens if token.type == "code_block"))
    following = (range(first, last) for first, last in maps if not before[first].strip(" \t>"))
    return set(itertools.chain(*following))


def _certain(
    text: str, spans: Sequence[tuple[int, int]], paragraphs: set[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The spans that are code to any renderer: all else in their paragraphs is plain text. What
    begins a line is part of the text where a span has several lines."""
    starts, certain = [*_line_starts(text), len(text) + 1], list[tuple[int, int]]()
    for first, last in sorted(paragraphs):
        begin, end = starts[first], starts[last] - 1
        among = (bisect.bisect_left(spans, at, key=_begin) for at in (begin, end))
        inside = spans[slice(*among)]
        one_line = [span for span in inside if "\n" not in text[slice(*span)]]
        edges = [begin, *itertools.chain(*one_line), end]
        outside = zip(edges[::2], edges[1::2], strict=True)
        if not any(_MAY_INCLUDE_BACKTICKS.search(text[slice(*part)]) for part in outside):
            certain += inside
    return certain


def _paragraphs(tokens: Sequence[Token]) -> set[tuple[int, int]]:
    """The lines of paragraphs, headings and rows of tables: where each begins, and the next."""
    maps = (token.map for token in tokens if token.type == "inline")
    return {(first, last) for first, last in filter(None, maps)}


def _code_spans(text: str, tokens: Sequence[Token]) -> list[tuple[int, int]]:
    """Where inline code begins and ends, the backticks included."""
    starts = [*_line_starts(text), len(text) + 1]
    spans: list[tuple[int, int]] = []
    for first, last in sorted(_paragraphs(tokens)):
        spans += _spans_within(text, starts[first], starts[last] - 1)
    return spans


def _spans_within(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of one paragraph: code ends at as many backticks as it began with."""
    runs = list(_BACKTICKS.finditer(text, begin, end))
    closing: dict[int, deque[int]] = {}
    for run in runs:
        closing.setdefault(len(run[2]), deque()).append(run.start(2))
    done = begin
    for run in runs:
        if run.start(2) < done:
            continue
        opening = run.start(2) + len(run[1]) % 2  # a backslash is before the first one
        ends = closing.get(run.end() - opening, deque())
        while ends and ends[0] < run.end():
            ends.popleft()
        if ends:
            done = ends.popleft() + run.end() - opening
            yield opening, done


def _begin(span: tuple[int, int]) -> int:
    return span[0]


def _line_starts(text: str) -> list[int]:
    return [0, *(found.end() for found in re.finditer("\n", text))]


def _line_at(starts: Sequence[int], at: int) -> int:
    return bisect.bisect_right(starts, at) - 1


def _lines_of(tokens: Sequence[Token], *types: str) -> set[int]:
    maps = (token.map for token in tokens if token.type in types)
    return {line for lines in maps if lines is not None for line in range(*lines)}


def _with_formulas_outside_code(text: str) -> str:
    """A formula may have several lines."""
    environment: dict[str, Any] = {}
    tokens = _WITH_HTML.parse(text, environment)
    code = _lines_of(tokens, "fence", "code_block")
    text = _with_text_boxes(text, code)
    starts = [*_line_starts(text), len(text)]
    literal = _lines_of(tokens, "html_block") | _definitions(environment)
    blocks = [(starts[line], starts[line + 1]) for line in code | literal]
    in_literal = {starts[line] for line in literal}
    done, at = [], 0
    for begin, end in sorted([*blocks, *_code_spans(text, tokens)]):
        part = text[begin:end]
        done.append(_with_formulas(text[at:begin], without_directives))
        done.append(_with_formulas(part) if begin in in_literal else part)
        at = end
    done.append(_with_formulas(text[at:], without_directives))
    return "".join(done)


def _definitions(environment: dict[str, Any]) -> set[int]:
    """The lines of links' definitions, in which a backslash would end them."""
    found = [*environment.get("references", {}).values(), *environment.get("duplicate_refs", ())]
    return {line for one in found for line in range(*one["map"])}


def _with_text_boxes(text: str, code: set[int]) -> str:
    lines, done = text.split("\n"), list[str]()
    for is_code, numbers in itertools.groupby(range(len(lines)), code.__contains__):
        part = "\n".join(lines[number] for number in numbers)
        done.append(part if is_code else _TASK.sub(_box, part))
    return "\n".join(done)


def _box(task: re.Match[str]) -> str:
    return task[1] + ("☐" if task[2] == " " else "☑")


def _with_formulas(text: str, prose: Callable[[str], str] = str) -> str:
    """Formulas in dollars, as the renderer knows them; every other dollar is one. ``prose``: what
    is done with all that is not in a formula."""
    done, at = [], 0
    for found in _MATH.finditer(text):
        done.append(prose(_DOLLAR.sub(r"\1\\$", text[at : found.start()])))
        quoted = text[text.rfind("\n", 0, found.start()) + 1 :].lstrip().startswith(">")
        formula = next(filter(None, found.groups()))
        formula = re.sub(r"\s*\n[ \t]*>?\s*" if quoted else r"\s*\n\s*", " ", formula).strip()
        done.append(_displayed(formula) if found["block"] or found["double"] else f"${formula}$")
        at = found.end()
    done.append(prose(_DOLLAR.sub(r"\1\\$", text[at:])))
    return "".join(done)


def _displayed(formula: str) -> str:
    for written, instead in _ONLY_IN_BLOCKS:
        formula = written.sub(instead, formula)
    return f"$$\\displaystyle {formula}$$"
