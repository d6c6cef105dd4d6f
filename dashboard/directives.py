"""What a colon means to Streamlit's Markdown alone, written so that it is only a colon."""

from __future__ import annotations

import re

# Streamlit takes :word, ::word and :::word for its directives. It leaves out their [ ] and { }, and
# of colours and of whole lines the word, too. :word: is an emoji or an icon to it, even if the
# first colon is escaped.
_NAME = r"(?:[\w+-]|\\[_-]){1,64}"
_COLON = re.compile(
    # Addresses and tags stay as they are.
    r"(?P<kept><[A-Z][\w+.-]+:[^<>\s]*>"
    r"|</?[A-Z][\w-]*(?:\s+[\w:.-]+(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'=<>`]+))?)*\s*/?>"
    r"|(?<![A-Z])https?://[^\s<]+|(?<![^\s(*_~\[\]])www\.[^\s<]+)"
    # The destination of a link is one, too.
    r"|(?P<destination>\]\((?:[^()\n\\]|\\.|\([^()\n]*\))*\))"
    r"|(?<!\\)(?P<escape>\\*):(?:"
    rf"(?=[\w+\\-]{{0,64}}[A-Z]|100:|1234:|[+-]1:)(?P<emoji>{_NAME}):(?P<brace>\{{?)"
    r"|(?P<icon>material)/"
    # A name may begin with anything but white space and punctuation. Times need no backslash.
    r"|(?!\d[\d-]*(?![\w\[{-]))(?=[^\s!-/:-@\[-`{-~]))",
    re.ASCII | re.IGNORECASE,
)
# Streamlit draws :color[…] without a colour: a plain colon, which ends no emoji's name.
_COLON_BY_ITSELF = ":color[:]"


def without_directives(text: str) -> str:
    """Prose, without code and formulas, in which each colon is shown as it was written."""
    return _COLON.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    if found["kept"]:
        return found[0]
    if found["destination"]:
        return found[0].replace(":material/", r":material\/")
    escape = found["escape"]
    colon = escape + (":" if len(escape) % 2 else r"\:")
    if found["emoji"]:
        brace = r"\{" if found["brace"] else ""
        return f"{colon}{found['emoji']}{_COLON_BY_ITSELF}{brace}"
    return rf"{colon}material\/" if found["icon"] else colon
