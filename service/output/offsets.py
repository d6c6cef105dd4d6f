"""Where in a text each of its tokens begins, in characters.

A token that continues a character begins where the character does, and one without text (a hidden
special token) where the next text does.
"""

from __future__ import annotations

from typing import Protocol

from service.checkpoint.vocabulary import REPLACEMENT, Vocabulary
from service.output.detokenizer import new_detokenizer


class Offsets(Protocol):
    def take(self, token_id: int) -> int:
        """Return where the next token begins."""


class OutputOffsets:
    """For the tokens of an output, in order. ``start``: where its text begins; ``end``: where
    that of the tokens taken so far ends."""

    __slots__ = ("_byte_of", "_flush", "_push", "_text", "end")

    def __init__(
        self, vocabulary: Vocabulary, *, skip_special_tokens: bool, continues_text: bool, start: int
    ) -> None:
        detokenizer = new_detokenizer(
            vocabulary, skip_special_tokens=skip_special_tokens, continues_text=continues_text
        )
        self._push, self._flush = detokenizer.push, detokenizer.flush
        self._text = vocabulary.token_text
        self._byte_of = vocabulary.byte_fallback or {}
        self.end = start

    def take(self, token_id: int) -> int:
        start = self.end
        piece = self._push(token_id)
        if not piece:
            return start
        self.end = end = start + len(piece)
        text = self._text[token_id]
        if token_id in self._byte_of or text == REPLACEMENT:
            return start
        # What comes before the token's own text is a character that remained incomplete.
        return max(start, end - len(text))

    def take_last(self) -> int:
        """Return where the whole text ends, as a last character may have remained incomplete."""
        self.end += len(self._flush())
        return self.end


class HiddenOffsets:
    """For the token that ended an output and is not part of the text: it begins where the text
    ends. ``before``: has taken all other tokens by then."""

    __slots__ = ("_before",)

    def __init__(self, before: OutputOffsets) -> None:
        self._before = before

    def take(self, token_id: int) -> int:
        return self._before.take_last()


class EchoOffsets:
    """For the tokens of a prompt, in order, whose text is ``echo``: special tokens are part of it
    if the client wrote them, but not those that the tokenizer added."""

    __slots__ = ("_echo", "_inner", "_special", "_text")

    def __init__(self, vocabulary: Vocabulary, echo: str) -> None:
        self._inner = OutputOffsets(
            vocabulary, skip_special_tokens=False, continues_text=False, start=0
        )
        self._echo = echo
        self._special = vocabulary.special_ids
        self._text = vocabulary.token_text

    def take(self, token_id: int) -> int:
        inner, echo = self._inner, self._echo
        if token_id in self._special and not echo.startswith(self._text[token_id], inner.end):
            return min(inner.end, len(echo))
        return min(inner.take(token_id), len(echo))
