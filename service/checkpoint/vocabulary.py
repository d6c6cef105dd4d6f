"""The text and bytes of each token id, from which output text is made.

Read from a ``tokenizer.json``: the tokens, and the decoder's declared steps. Three families of
decoders are supported: byte-level BPE, where a token is a byte string; SentencePiece-like, where it
is a text piece and unknown characters are spelled as byte tokens; and WordPiece, used by encoders.
Others are rejected at startup.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

REPLACEMENT = "\ufffd"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")
# Real decoders have up to five steps. A file of a kilobyte could otherwise make gigabytes of text.
_MOST_STEPS = 64
_MOST_GROWN_CHARS = 4096  # of a token that replacements make longer
_MOST_ADDED_CHARS = 1 << 24  # by replacements to all tokens
_OF_PIECES = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}  # SentencePiece-like


class UnsupportedTokenizerError(ValueError):
    """Quire does not support this kind of tokenizer decoder."""


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """``token_bytes[id]``: the bytes of a single token; empty for an id without a token.
    ``token_text[id]``: the same as text; "\ufffd" for a byte-level token that is only part of a
    character. ``byte_fallback`` maps the byte tokens of a SentencePiece-like vocabulary to their
    byte (empty if it has none) and is None for byte-level ones. ``strip_start`` converts a
    ``token_text`` to the first piece of a text."""

    token_bytes: tuple[bytes, ...]
    token_text: tuple[str, ...]
    byte_fallback: dict[int, bytes] | None
    special_ids: frozenset[int]
    strip_start: Callable[[str], str]

    def text_of(self, token_id: int) -> str:
        """Return a single token as text, for logprobs; invalid bytes become U+FFFD."""
        return self.bytes_of(token_id).decode("utf-8", "replace")

    def key_of(self, token_id: int) -> str:
        """Return a single token as text, in which bytes that are not text are spelled out, as
        OpenAI's completions do: ``bytes:\\xc3``."""
        spelled = self.bytes_of(token_id)
        try:
            return spelled.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)

    def bytes_of(self, token_id: int) -> bytes:
        if token_id >= len(self.token_bytes):
            return b""
        return self.token_bytes[token_id]

    def named_by_id(self) -> Vocabulary:
        """Return a copy in which tokens as text are ``token_id:ID``, which is unique for each."""
        return _NamedById(
            self.token_bytes,
            self.token_text,
            self.byte_fallback,
            self.special_ids,
            self.strip_start,
        )

    def without_specials(self, shown: frozenset[int]) -> Vocabulary:
        """Return a copy in which ``shown`` are ordinary tokens."""
        return Vocabulary(
            self.token_bytes,
            self.token_text,
            self.byte_fallback,
            self.special_ids - shown,
            self.strip_start,
        )


class _NamedById(Vocabulary):
    def text_of(self, token_id: int) -> str:
        return f"token_id:{token_id}"

    key_of = text_of


def read_vocabulary(
    tokens: list[str | None], special_ids: frozenset[int], decoder: dict[str, Any] | None
) -> Vocabulary:
    """``tokens[id]``: as the tokenizer spells them; ``decoder``: as in tokenizer.json.

    Raises UnsupportedTokenizerError.
    """
    steps = decoder_steps(decoder)
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds:
        token_bytes = tuple(b"" if token is None else _byte_level(token) for token in tokens)
        token_text = tuple(_text_or_replacement(piece) for piece in token_bytes)
        return Vocabulary(token_bytes, token_text, None, special_ids, str)
    if "WordPiece" in kinds:
        return _read_word_pieces(tokens, special_ids, steps[0]["prefix"])
    return _read_pieces(tokens, special_ids, steps)


def decoder_steps(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the steps of a decoder, which together are of one of the three families. Raises
    UnsupportedTokenizerError for any other."""
    steps = _flatten(decoder)
    if len(steps) > _MOST_STEPS:
        raise UnsupportedTokenizerError(
            f"the tokenizer's decoder has {len(steps)} steps; at most {_MOST_STEPS} are supported"
        )
    kinds = {str(step["type"]) for step in steps}
    if "ByteLevel" in kinds and kinds <= {"ByteLevel", "Fuse"}:
        return steps
    if kinds == {"WordPiece"} or (kinds and kinds <= _OF_PIECES):
        return steps
    raise UnsupportedTokenizerError(
        f"the tokenizer's decoder ({', '.join(sorted(kinds)) or 'none'}) is not supported; "
        "byte-level BPE, SentencePiece-like and WordPiece tokenizers are"
    )


def _flatten(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder["type"] == "Sequence":
        return [step for inner in decoder["decoders"] for step in _flatten(inner)]
    return [decoder]


def _read_pieces(
    tokens: list[str | None], special_ids: frozenset[int], steps: list[dict[str, Any]]
) -> Vocabulary:
    replacements: list[tuple[str, str]] = []
    strips: list[Callable[[str], str]] = []
    for step in steps:
        match step["type"]:
            case "Replace":
                replacements.append((_literal(step["pattern"]), step["content"]))
            case "Metaspace":
                replacements.append((step["replacement"], " "))
                if step.get("prepend_scheme", "always") != "never":
                    strips.append(_without_spaces)
            case "Strip":
                if step["stop"]:
                    raise UnsupportedTokenizerError("a decoder that strips a text's end")
                strips.append(functools.partial(_strip_prefix, step["content"], step["start"]))
    has_bytes = any(step["type"] == "ByteFallback" for step in steps)
    bytes_of: dict[int, bytes] = {}
    texts: list[str] = []
    added = 0
    for token_id, token in enumerate(tokens):
        text = token or ""
        for old, new in replacements:
            added += max(0, _grown(text, old, new) - len(text))
            if added > _MOST_ADDED_CHARS:
                raise UnsupportedTokenizerError(
                    "the decoder's replacements make all tokens together more than "
                    f"{_MOST_ADDED_CHARS} characters longer"
                )
            text = text.replace(old, new)
        if has_bytes and (match := _BYTE_TOKEN.match(text)):
            bytes_of[token_id] = bytes.fromhex(match[1])
        texts.append(text)
    token_bytes = tuple(
        bytes_of.get(token_id) or text.encode("utf-8") for token_id, text in enumerate(texts)
    )
    strip = functools.partial(_strip_start, strips)
    return Vocabulary(token_bytes, tuple(texts), bytes_of, special_ids, strip)


def _read_word_pieces(
    tokens: list[str | None], special_ids: frozenset[int], prefix: str
) -> Vocabulary:
    """A token begins a word unless it has the prefix. Spaces before punctuation, which the
    library's own decoder removes, are kept: encoders only show single tokens."""

    def text(token_id: int, token: str) -> str:
        if token_id in special_ids:
            return token
        return token.removeprefix(prefix) if token.startswith(prefix) else f" {token}"

    texts = tuple(text(token_id, token or prefix) for token_id, token in enumerate(tokens))
    return Vocabulary(
        tuple(text.encode("utf-8") for text in texts), texts, None, special_ids, str.lstrip
    )


def _literal(pattern: dict[str, str]) -> str:
    if "String" not in pattern:
        raise UnsupportedTokenizerError("a decoder that replaces by a regular expression")
    return pattern["String"]


def _grown(text: str, old: str, new: str) -> int:
    """Return the length that a replacement gives a token. Raises UnsupportedTokenizerError if it
    makes it too long."""
    size = len(text) + text.count(old) * (len(new) - len(old))
    if size > max(len(text), _MOST_GROWN_CHARS):
        raise UnsupportedTokenizerError(
            f"the decoder's replacements make a token {size} characters long; at most "
            f"{_MOST_GROWN_CHARS} are supported"
        )
    return size


def _strip_start(strips: list[Callable[[str], str]], text: str) -> str:
    for strip in strips:
        text = strip(text)
    return text


def _strip_prefix(content: str, count: int, text: str) -> str:
    """``content``: one character, as the library requires; ``count`` may be any number."""
    return text[min(count, len(text) - len(text.lstrip(content))) :]


def _without_spaces(text: str) -> str:
    """A Metaspace decoder drops every space marker of a text's first token."""
    return text.replace(" ", "")


@functools.cache
def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable substitutes for the 256 bytes: printable Latin-1 represents itself, the
    rest is shifted past U+0100 in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    hidden = (byte for byte in range(256) if byte not in set(printable))
    return alphabet | {chr(0x100 + shift): byte for shift, byte in enumerate(hidden)}


def _text_or_replacement(piece: bytes) -> str:
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return REPLACEMENT


def _byte_level(token: str) -> bytes:
    """A token with a character outside the byte alphabet is an added one and represents itself."""
    alphabet = _byte_alphabet()
    try:
        return bytes([alphabet[char] for char in token])
    except KeyError:
        return token.encode("utf-8")
