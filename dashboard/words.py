"""Numbers and model output as people read them."""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

UNKNOWN = "–"
MOST_DECIMALS = 3

# A list of tasks, whose boxes the renderer draws as fields without a label.
_TASK = re.compile(r"(?m)^([ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+)\[([ xX])\](?=[ \t])")
_INLINE_CODE = re.compile(r"(`[^`\n]*`)")
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
# Find blocks as the renderer does. Only what is code to both is code for certain.
_WITH_HTML, _WITHOUT_HTML = (
    MarkdownIt("commonmark", {"html": html}).enable("table").disable(["inline", "text_join"])
    for html in (True, False)
)
# Begins and ends Streamlit's own blocks, also inside a fence.
_STREAMLITS_OWN = ":::"


def duration(seconds: float | None, digits: int = 3) -> str:
    """Milliseconds below a second, seconds above: ``0.850 ms``, ``8.40 ms``, ``120 ms``,
    ``2.50 s``, ``75.0 s``. Minutes are not used, so that lengths compare at a glance."""
    if seconds is None or math.isnan(seconds):
        return UNKNOWN
    if _rounded(seconds, digits) < 1:
        return f"{number(seconds * 1000, digits)} ms"
    return f"{number(seconds, digits)} s"


def age(seconds: float) -> str:
    """How long something has lasted: ``45 s``, ``32 min 9 s``, ``5 h 12 min``, ``3 d 4 h``. As
    ``sinceWords`` in drawing/common.js."""
    whole = max(0, math.floor(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if not minutes:
        return f"{whole} s"
    if not hours:
        return f"{minutes} min {whole % 60} s"
    return f"{hours} h {minutes % 60} min" if not days else f"{days} d {hours % 24} h"


def number(value: float, digits: int = 3) -> str:
    """A measured value: as many digits as are significant, so that its width does not change from
    second to second: ``0``, ``0.300``, ``42.1``, ``1,250``."""
    if math.isnan(value):
        return UNKNOWN
    if value == 0:
        return "0"
    rounded = _rounded(value, digits)
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded if decimals >= 0 else value:,.{min(max(decimals, 0), MOST_DECIMALS)}f}"


def count(value: float) -> str:
    """Of things that come in whole numbers: ``7``, ``1,250``."""
    return UNKNOWN if math.isnan(value) else f"{value:,.0f}"


def in_full(value: float) -> str:
    """A setting's value, which nothing may be left out of: ``0.001``, ``2``, ``1,000,000``."""
    return f"{value:,.12g}" if abs(value) < 1e12 else f"{value:g}"


def percent(ratio: float) -> str:
    return UNKNOWN if math.isnan(ratio) else f"{number(ratio * 100)} %"


def text_only(unserved: Sequence[str]) -> str:
    """``unserved``: inputs that a checkpoint reads and the server does not take: ``text only, no
    image or video``. Empty if there are none."""
    return f"text only, no {' or '.join(unserved)}" if unserved else ""


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def plain_markdown(text: str) -> str:
    """Model output for a Markdown renderer: a formula is one, any other dollar sign is money, a
    line ends where its writer ended it, and no image is fetched from wherever the model says.

    Every image begins with ``![``, which is broken up everywhere but in fenced code. Inline code
    and fences of which we cannot be certain show the backslash: what is code to us and not to the
    renderer would be fetched.
    """
    # As Streamlit does it itself, so that columns and lines are those that it will see.
    text = textwrap.dedent(text.replace("\r\n", "\n").replace("\r", "\n")).strip()
    lines = _with_formulas_outside(_code_lines(text), text.split("\n"))
    text = "\n".join(lines)
    fenced, within_paragraphs = _blocks(text)
    for number in range(len(lines)):
        if number not in fenced or _STREAMLITS_OWN in text:
            lines[number] = lines[number].replace("![", r"!\[")
        if number in within_paragraphs and not lines[number].endswith("\\"):
            lines[number] += "  "  # unseen where it is in inline code, unlike a backslash
    return "\n".join(lines)


def _code_lines(text: str) -> set[int]:
    """The lines of fenced and of indented code. The latter are not certain enough for images."""
    return _lines_of(_WITH_HTML.parse(text), "fence", "code_block")


def _blocks(text: str) -> tuple[set[int], set[int]]:
    """The lines of fenced code, the fences included; the lines that end within a paragraph, which a
    renderer would join."""
    tokens = _WITH_HTML.parse(text)
    fenced = _lines_of(tokens, "fence")
    if fenced and "<" in text:
        fenced &= _lines_of(_WITHOUT_HTML.parse(text), "fence")
    within: set[int] = set()
    for before, token in itertools.pairwise(tokens):
        if before.type == "paragraph_open" and token.map is not None:
            within.update(range(token.map[0], token.map[1] - 1))
    return fenced, within


def _lines_of(tokens: Sequence[Token], *types: str) -> set[int]:
    maps = (token.map for token in tokens if token.type in types)
    return {line for lines in maps if lines is not None for line in range(*lines)}


def _with_formulas_outside(code: set[int], lines: list[str]) -> list[str]:
    """A formula may have several lines."""
    done: list[str] = []
    for is_code, numbers in itertools.groupby(range(len(lines)), code.__contains__):
        part = "\n".join(lines[number] for number in numbers)
        done += (part if is_code else _outside_code(part)).split("\n")
    return done


def _outside_code(text: str) -> str:
    text = _TASK.sub(lambda found: found[1] + ("☐" if found[2] == " " else "☑"), text)
    parts = _INLINE_CODE.split(text)
    for index in range(0, len(parts), 2):
        parts[index] = _with_formulas(parts[index])
    return "".join(parts)


def _with_formulas(text: str) -> str:
    """Formulas in dollars, as the renderer knows them; every other dollar is one."""
    done, at = [], 0
    for found in _MATH.finditer(text):
        done.append(_DOLLAR.sub(r"\1\\$", text[at : found.start()]))
        quoted = text[text.rfind("\n", 0, found.start()) + 1 :].lstrip().startswith(">")
        formula = next(filter(None, found.groups()))
        formula = re.sub(r"\s*\n[ \t]*>?\s*" if quoted else r"\s*\n\s*", " ", formula).strip()
        done.append(_displayed(formula) if found["block"] or found["double"] else f"${formula}$")
        at = found.end()
    done.append(_DOLLAR.sub(r"\1\\$", text[at:]))
    return "".join(done)


def _displayed(formula: str) -> str:
    for written, instead in _ONLY_IN_BLOCKS:
        formula = written.sub(instead, formula)
    return f"$$\\displaystyle {formula}$$"
