"""Text to token ids, by the checkpoint's own ``tokenizer.json``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as FastTokenizer

from service.prompt.vocabulary import Vocabulary, read_vocabulary

# Encoding takes about half a microsecond a character; texts beyond this would stall the other
# streams.
THREAD_CHARS = 4 * 1024


class EncodedText:
    """Token ids of one text or of a pair, and what each token is. Read on demand: only few are
    truncated, and only pairs have types."""

    __slots__ = ("_encoding", "ids")

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding
        self.ids: list[int] = encoding.ids

    @property
    def type_ids(self) -> list[int]:
        """1 for tokens of a pair's second text, where the tokenizer tells them apart."""
        types: list[int] = self._encoding.type_ids
        return types

    @property
    def text_of_token(self) -> list[int | None]:
        """0, or 1 for a pair's second text; None for special tokens that the tokenizer added."""
        texts: list[int | None] = self._encoding.sequence_ids
        return texts


class Tokenizer:
    """Encoding is safe from several threads; everything else is read-only after construction."""

    def __init__(self, path: Path) -> None:
        """Raises FileNotFoundError without a tokenizer.json, UnsupportedTokenizerError."""
        text = path.read_text(encoding="utf-8")
        self._fast = FastTokenizer.from_str(text)
        self._fast.no_truncation()
        self._fast.no_padding()
        added = self._fast.get_added_tokens_decoder()
        size = max(self._fast.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        tokens = [self._fast.id_to_token(token_id) for token_id in range(size)]
        special = frozenset(token_id for token_id, token in added.items() if token.special)
        self._added = {token.content: token_id for token_id, token in added.items()}
        self.vocabulary: Vocabulary = read_vocabulary(tokens, special, json.loads(text)["decoder"])

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Raises UnicodeEncodeError for a text with half a surrogate pair in it."""
        # Unlike ``encode``, the library's batch calls let go of the GIL: a thread's long text would
        # otherwise hold up the event loop for seconds.
        encoded = self._fast.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoded[0].ids
        return ids

    def encode_text(self, text: str | tuple[str, str], *, add_special_tokens: bool) -> EncodedText:
        """A text, or a pair of texts that are to be read together."""
        # One at a time: a batch would be spread over all cores, which are the engine's.
        encoded = self._fast.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return EncodedText(encoded[0])

    async def encode_async(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Like ``encode``; a long text is encoded in a thread."""
        if len(text) < THREAD_CHARS:
            return self.encode(text, add_special_tokens=add_special_tokens)
        return await asyncio.to_thread(self.encode, text, add_special_tokens=add_special_tokens)

    def decode(self, ids: list[int], *, skip_special_tokens: bool = False) -> str:
        """A whole text at once, by the tokenizer's own decoder."""
        texts: list[str] = self._fast.decode_batch([ids], skip_special_tokens=skip_special_tokens)
        return texts[0]

    def token_id(self, text: str) -> int | None:
        """The token that this text always is, wherever it stands; None for a text that may come in
        pieces."""
        return self._added.get(text)
