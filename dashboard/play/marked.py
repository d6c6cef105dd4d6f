"""Text as HTML with marks: how likely each token was, and the words in which two answers differ."""

from __future__ import annotations

import difflib
import html
import math
import re
from collections.abc import Sequence

from dashboard.answer import Token

MOST_TOKENS = 2_000
_MOST_WORDS = 4_000
_WORD = re.compile(r"\s+|\w+|[^\w\s]")


def tinted(tokens: Sequence[Token]) -> str:
    """The less likely a token was, the darker its ground. Its tooltip has the likeliest ones."""
    spans = [
        f'<span tabindex="0" style="--doubt:{_doubt(token):.0f}%" title="{_tooltip(token)}">'
        f"{html.escape(token.text)}</span>"
        for token in tokens[:MOST_TOKENS]
    ]
    left = len(tokens) - MOST_TOKENS
    rest = f"<p>{left:,} more tokens are not shown.</p>" if left > 0 else ""
    return f'<div class="quire-tokens">{"".join(spans)}</div>{rest}'


def _doubt(token: Token) -> float:
    """0 for a token that was certain, at most 70 (percent of the colour)."""
    return 70 * (1 - math.exp(min(token.logprob, 0.0)))


def _tooltip(token: Token) -> str:
    likeliest = token.top or ((token.text, token.logprob),)
    lines = [f"{_percent(logprob)}  {text!r}" for text, logprob in likeliest]
    if all(text != token.text for text, _ in likeliest):
        lines.append(f"{_percent(token.logprob)}  {token.text!r} (chosen)")
    return html.escape("\n".join(lines), quote=True).replace("\n", "&#10;")


def _percent(logprob: float) -> str:
    return f"{100 * math.exp(min(logprob, 0.0)):.2f} %"


def differing(one: str, other: str) -> tuple[str, str] | None:
    """Both texts with what only one of them has marked; None if they are too long to compare."""
    words, others = _WORD.findall(one), _WORD.findall(other)
    if len(words) + len(others) > _MOST_WORDS:
        return None
    matcher = difflib.SequenceMatcher(None, words, others, autojunk=False)
    left, right = [], []
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        left.append(_shown(words[start:end], kind == "equal"))
        right.append(_shown(others[other_start:other_end], kind == "equal"))
    return _box(left), _box(right)


def _shown(words: list[str], equal: bool) -> str:
    text = html.escape("".join(words))
    return text if equal or not text else f"<mark>{text}</mark>"


def _box(pieces: list[str]) -> str:
    return f'<div class="quire-tokens">{"".join(pieces)}</div>'
