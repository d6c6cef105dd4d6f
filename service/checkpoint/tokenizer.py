"""Converts text to token ids with the checkpoint's own ``tokenizer.json``."""

from __future__ import annotations

import itertools
import json
from array import array
from bisect import bisect_right
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as FastTokenizer

from engine.architecture.tokenizer_files import TOKENIZER, read_tokenizer
from service.checkpoint.tokenizer_cost import is_cheap
from service.checkpoint.vocabulary import UnsupportedTokenizerError, Vocabulary, read_vocabulary

# How much of a long text is encoded at first, in characters per token that may be kept. English has
# between four and five.
_CHARS_PER_TOKEN = 10
# Where a text is cut, a few tokens may differ from those of the whole text.
_EDGE_TOKENS = 64
_MOST_UNUSED_IDS = 1 << 20


# DeepSeek's pattern for spaces at the end of a text takes quadratic time: seconds for 32,000. If a
# pattern before it has split off the ends of lines, the other one matches the same.
_LINE_ENDS = ("[\\r\\n]", "[\r\n]")
_QUADRATIC, _LINEAR = r"\s+$", r"(?<!\s)\s++$"


def _made_linear(fields: Any) -> bool:
    """Replace a pattern that takes quadratic time in the fields of a tokenizer.json. Return whether
    there was one."""
    pre_tokenizer = fields.get("pre_tokenizer") if isinstance(fields, dict) else None
    splits = pre_tokenizer.get("pretokenizers") if isinstance(pre_tokenizer, dict) else None
    splits_lines = found = False
    for split in splits if isinstance(splits, list) else ():
        pattern: Any = split.get("pattern") if isinstance(split, dict) else None
        regex = pattern.get("Regex") if isinstance(pattern, dict) else None
        splits_lines = splits_lines or regex in _LINE_ENDS
        if splits_lines and regex == _QUADRATIC:
            pattern["Regex"], found = _LINEAR, True
    return found


class TooManyTokensError(ValueError):
    """The text has more tokens than can be used. ``counted``: those found before encoding ended;
    ``estimated``: of the whole text."""

    def __init__(self, message: str, counted: int, estimated: int) -> None:
        super().__init__(message)
        self.counted = counted
        self.estimated = estimated


class UntokenizableError(ValueError):
    """The tokenizer gives up on the text: one of its regular expressions takes too many steps."""


def _is_panic(error: BaseException) -> bool:
    """True if the library's own code gave up. The type of such errors derives from BaseException,
    and cannot be imported."""
    kind = type(error)
    return (kind.__module__, kind.__name__) == ("pyo3_runtime", "PanicException")


class EncodedText:
    """The token ids of a text or a pair of texts, and the type of each token. Read lazily: few
    texts are truncated, and only pairs have types."""

    __slots__ = ("_encoding", "ids")

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding
        self.ids: list[int] = encoding.ids

    @property
    def type_ids(self) -> list[int]:
        """1 for tokens of a pair's second text, if the tokenizer distinguishes them."""
        types: list[int] = self._encoding.type_ids
        return types

    @property
    def text_of_token(self) -> list[int | None]:
        """0, or 1 for a pair's second text; None for special tokens that the tokenizer added."""
        texts: list[int | None] = self._encoding.sequence_ids
        return texts


class Tokenizer:
    """Encoding is thread-safe; everything else is read-only after construction. ``is_cheap``: its
    cost is known to be in proportion to the text."""

    def __init__(self, directory: Path) -> None:
        """Raises FileNotFoundError without a tokenizer.json, ConfigError, or
        UnsupportedTokenizerError."""
        text = read_tokenizer(directory)
        fields = json.loads(text)
        self._fast = FastTokenizer.from_str(json.dumps(fields) if _made_linear(fields) else text)
        self.is_cheap = is_cheap(fields)
        self._fast.no_truncation()
        self._fast.no_padding()
        added = self._fast.get_added_tokens_decoder()
        vocabulary = self._fast.get_vocab(with_added_tokens=True)
        size = max(vocabulary.values(), default=-1) + 1
        if size > len(vocabulary) + _MOST_UNUSED_IDS:  # each id costs memory in every worker
            raise UnsupportedTokenizerError(
                f"{directory / TOKENIZER} has {len(vocabulary)} tokens and the token id "
                f"{size - 1}; at most {_MOST_UNUSED_IDS} ids may be unused"
            )
        tokens = [self._fast.id_to_token(token_id) for token_id in range(size)]
        special = frozenset(token_id for token_id, token in added.items() if token.special)
        self._added = {token.content: token_id for token_id, token in added.items()}
        self.vocabulary: Vocabulary = read_vocabulary(tokens, special, fields["decoder"])
        self._token_sizes = array("I", map(len, self.vocabulary.token_bytes))
        self.longest_token = max(map(len, self.vocabulary.token_bytes), default=1)  # in bytes

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Raises UnicodeEncodeError for a text that contains half of a surrogate pair, and
        UntokenizableError."""
        try:
            encoded = self._encoding(text, add_special_tokens=add_special_tokens)
        except TypeError:  # raised for invalid Unicode by some of the library's releases
            text.encode()
            raise
        ids: list[int] = encoded.ids
        return ids

    def encode_text(self, text: str | tuple[str, str], *, add_special_tokens: bool) -> EncodedText:
        """Encode a text, or a pair of texts to be read together. Raises UntokenizableError."""
        return EncodedText(self._encoding(text, add_special_tokens=add_special_tokens))

    def _encoding(self, text: str | tuple[str, str], *, add_special_tokens: bool) -> Any:
        try:
            # One at a time: a batch would use all cores, which the engine needs. Unlike
            # ``encode``, the library's batch calls release the GIL.
            return self._fast.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0]
        except BaseException as error:
            if _is_panic(error):
                raise UntokenizableError(str(error)) from error
            raise

    def encode_within(self, text: str, most: int, *, add_special_tokens: bool) -> list[int]:
        """Like ``encode``, for a text that is useless with more than ``most`` tokens, though a few
        more may be returned. Raises TooManyTokensError, and UnicodeEncodeError."""
        self.check_within(text, most)
        return self.encode(text, add_special_tokens=add_special_tokens)

    def check_within(self, text: str, most: int) -> None:
        """Raise TooManyTokensError for a long text that certainly has more than ``most`` tokens,
        because its beginning alone has twice as many. Encodes no more than needed to show that."""
        window = _CHARS_PER_TOKEN * most
        while 2 * window < len(text):
            counted = len(self.encode(text[:window], add_special_tokens=False))
            if counted >= 2 * most:
                estimated = counted * len(text) // window
                raise TooManyTokensError(f"more than {most} tokens", counted, estimated)
            window *= 4

    def encode_part(
        self, text: str, most: int, *, from_end: bool, add_special_tokens: bool
    ) -> list[int]:
        """Like ``encode``, for a text of which at most ``most`` tokens are kept, from its end or
        its beginning. Encodes only a part of a long text. Raises UnicodeEncodeError."""
        part = self.part_with(text, most, from_end=from_end)
        return self.encode(part, add_special_tokens=add_special_tokens)

    def part_with(self, text: str, most: int, *, from_end: bool) -> str:
        """Return the end or the beginning of a long text, with at least ``most`` tokens. Raises
        UnicodeEncodeError."""
        window = _CHARS_PER_TOKEN * (most + _EDGE_TOKENS)
        while 2 * window < len(text):
            part = text[-window:] if from_end else text[:window]
            if len(self.encode(part, add_special_tokens=False)) >= most + _EDGE_TOKENS:
                return part
            window *= 4
        return text

    def tokens_at(self, ids: list[int], offsets: list[int], size: int) -> list[int] | None:
        """Return the index of the token at each byte of the text that ``ids`` encode; None if they
        do not encode all of its ``size`` bytes as they are, so that offsets cannot be found."""
        sizes = self._token_sizes
        if not ids or max(ids) >= len(sizes):
            return None
        ends = list(itertools.accumulate(map(sizes.__getitem__, ids)))
        return [bisect_right(ends, at) for at in offsets] if ends[-1] == size else None

    def decode(self, ids: list[int], *, skip_special_tokens: bool = False) -> str:
        """Decode a whole text at once with the tokenizer's own decoder."""
        texts: list[str] = self._fast.decode_batch([ids], skip_special_tokens=skip_special_tokens)
        return texts[0]

    def token_id(self, text: str) -> int | None:
        """Return the token that always represents this text; None for a text that may be split."""
        return self._added.get(text)
