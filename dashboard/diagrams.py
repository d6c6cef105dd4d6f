"""Fences that Streamlit draws instead of showing them, written so that it shows them as code."""

from __future__ import annotations

import html
import re
from collections.abc import Container

# Streamlit draws a fence whose language is this one, in any case, and its browser then fetches
# whatever addresses the diagram has. The language may follow "language-" within a word, and letters
# of it may be written as character references.
DRAWN = re.compile("mermaid", re.IGNORECASE)
# Whatever comes before: lists, quotations and footnotes begin in many ways. After backticks that
# begin a fence there are no others in their line; after tildes there may be anything.
_BEGINS = re.compile(r"~{3}.*|`{3}[^`]*$")


def without_diagrams(text: str, code: Container[int]) -> str:
    """``code``: the numbers of lines that are within code for certain, and stay as they are."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if number not in code and (fence := _BEGINS.search(line)):
            lines[number] = line[: fence.start()] + _as_code(fence[0])
    return "\n".join(lines)


def _as_code(fence: str) -> str:
    """A backslash before a letter remains one, and no language begins with it."""
    if not DRAWN.search(html.unescape(fence)):
        return fence
    return DRAWN.sub(r"\\\g<0>", fence.replace("&", r"\&"))
