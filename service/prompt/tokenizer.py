"""Text to token ids, by the checkpoint's own ``tokenizer.json``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tokenizers import Tokenizer as FastTokenizer

from service.prompt.vocabulary import Vocabulary, read_vocabulary

# Encoding takes about half a microsecond a character; texts beyond this would stall the other
# streams.
THREAD_CHARS = 4 * 1024


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
