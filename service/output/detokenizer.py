"""Token ids to text, one at a time, in constant time per token, never half a character.

Concatenated, the pieces equal the output of the tokenizer's own decoder for the whole list (for
byte-fallback tokenizers: for any list whose byte runs are valid UTF-8; a run that turns invalid
after a whole character of it was released keeps that character).
"""

from __future__ import annotations

import codecs
import functools
from collections.abc import Sequence
from typing import Protocol

from service.checkpoint.vocabulary import REPLACEMENT, Vocabulary


class Detokenizer(Protocol):
    @property
    def whole_texts(self) -> Sequence[str] | None:
        """What ``push`` returns for each token, whatever was pushed before; empty or U+FFFD where
        that depends on it. None if it does for every token."""

    def push(self, token_id: int) -> str:
        """Return the text that this token completes; empty while a character is incomplete."""

    def flush(self) -> str:
        """At the end of the output, return an incomplete character as U+FFFD."""


def new_detokenizer(
    vocabulary: Vocabulary, *, skip_special_tokens: bool, continues_text: bool
) -> Detokenizer:
    """``continues_text``: the output continues the prompt's text, so keep a leading space that a
    decoder would strip at the start of a text."""
    if vocabulary.byte_fallback is None:
        return ByteLevelDetokenizer(vocabulary, skip_special_tokens)
    return PieceDetokenizer(vocabulary, skip_special_tokens, at_start=not continues_text)


@functools.lru_cache(maxsize=8)
def _whole_texts(vocabulary: Vocabulary, skipped: frozenset[int]) -> Sequence[str]:
    """Made by the first stream, on the event loop: copied at once, not token by token."""
    texts = list(vocabulary.token_text)
    for token_id in skipped.union(vocabulary.byte_fallback or ()):
        if token_id < len(texts):
            texts[token_id] = ""
    return texts


class ByteLevelDetokenizer:
    """For tokens that are byte strings (GPT-2, Llama 3, Qwen): one UTF-8 decoder for the whole
    stream."""

    __slots__ = ("_decoder", "_partial", "_size", "_skipped", "_table", "_text", "_vocabulary")

    def __init__(self, vocabulary: Vocabulary, skip_special_tokens: bool) -> None:
        self._vocabulary = vocabulary
        self._table = vocabulary.token_bytes
        self._text = vocabulary.token_text
        self._size = len(self._table)
        self._skipped = vocabulary.special_ids if skip_special_tokens else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = False  # the decoder holds the start of a character

    @property
    def whole_texts(self) -> Sequence[str] | None:
        return None if self._partial else _whole_texts(self._vocabulary, self._skipped)

    def push(self, token_id: int) -> str:
        if token_id in self._skipped or token_id >= self._size:
            return ""
        if not self._partial:
            text = self._text[token_id]
            if text != REPLACEMENT:
                return text
        text = self._decoder.decode(self._table[token_id])
        self._partial = bool(self._decoder.getstate()[0])
        return text

    def flush(self) -> str:
        self._partial = False
        return self._decoder.decode(b"", True)


class PieceDetokenizer:
    """For tokens that are text pieces, some single bytes written ``<0xNN>`` (SentencePiece style).

    A run of byte tokens is text if it is valid UTF-8 as a whole; otherwise each byte is one U+FFFD.
    """

    __slots__ = (
        *("_at_start", "_byte_of", "_decoder", "_partial", "_run_is_bad", "_size"),
        *("_skipped", "_strip", "_table", "_vocabulary"),
    )

    def __init__(
        self, vocabulary: Vocabulary, skip_special_tokens: bool, *, at_start: bool
    ) -> None:
        if vocabulary.byte_fallback is None:
            raise ValueError("this vocabulary's tokens are byte strings, not text pieces")
        self._vocabulary = vocabulary
        self._table = vocabulary.token_text
        self._size = len(self._table)
        self._byte_of = vocabulary.byte_fallback
        self._skipped = vocabulary.special_ids if skip_special_tokens else frozenset()
        self._strip = vocabulary.strip_start
        self._at_start = at_start
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._partial = 0  # bytes of the run not released yet
        self._run_is_bad = False

    @property
    def whole_texts(self) -> Sequence[str] | None:
        if self._partial or self._run_is_bad or self._at_start:
            return None
        return _whole_texts(self._vocabulary, self._skipped)

    def push(self, token_id: int) -> str:
        if token_id in self._skipped or token_id >= self._size:
            return ""
        byte = self._byte_of.get(token_id)
        text = self._end_run() + self._table[token_id] if byte is None else self._push_byte(byte)
        if self._at_start and text:
            text = self._strip(text)
            self._at_start = False
        return text

    def flush(self) -> str:
        return self._end_run()

    def _push_byte(self, byte: bytes) -> str:
        if self._run_is_bad:
            return REPLACEMENT
        self._partial += 1
        try:
            text = self._decoder.decode(byte)
        except UnicodeDecodeError:
            self._run_is_bad = True
            partial, self._partial = self._partial, 0
            self._decoder.reset()
            return REPLACEMENT * partial
        if text:
            self._partial = 0
        return text

    def _end_run(self) -> str:
        partial, self._partial = self._partial, 0
        self._run_is_bad = False
        if partial:
            self._decoder.reset()
        return REPLACEMENT * partial
