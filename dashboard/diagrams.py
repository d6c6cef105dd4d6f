"""Makes Streamlit show fences as code that it would draw as diagrams."""

from __future__ import annotations

import html
import re
from collections.abc import Container

# Streamlit draws a fence in this language, in upper or lower case, and the browser then fetches the
# addresses in the diagram. The language may follow "language-" within a word, and its letters may
# be written as character references.
DRAWN = re.compile("mermaid", re.IGNORECASE)
# Anything may come before, as lists, quotations and footnotes begin in many ways. The rest of the
# line has no backticks after backticks that begin a fence; after tildes it may have anything.
_BEGINS = re.compile(r"~{3}.*|`{3}[^`]*$")


def without_diagrams(text: str, code: Container[int]) -> str:
    """``code``: the numbers of lines that are certain to be within code; they stay as they are."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if number not in code and (fence := _BEGINS.search(line)):
            lines[number] = line[: fence.start()] + _as_code(fence[0])
    return "\n".join(lines)


def _as_code(fence: str) -> str:
    """Put a backslash before the language, which stays visible, so that it is not that language."""
    if not DRAWN.search(html.unescape(fence)):
        return fence
    return DRAWN.sub(r"\\\g<0>", fence.replace("&", r"\&"))
