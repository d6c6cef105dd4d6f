"""Log probabilities in the formats of OpenAI's APIs and vLLM, as JSON in bounded pieces.

They are by far the longest part of an answer that has them: the constant parts of a token's JSON
are encoded once and cached, and the structs below only serve to describe the API.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from engine.messages import TokenLogprobs
from service.checkpoint.vocabulary import Vocabulary
from service.output.offsets import Offsets

# JSON has no minus infinity; a token that was masked out is reported with this.
MIN_LOGPROB = -9999.0
# Tokens and their alternatives encoded at a time: well under a millisecond.
_SLICE_ENTRIES = 1024
_MOST_SPELLINGS = 1 << 15

_json = msgspec.json.Encoder().encode


class TopLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int] | None


class ChatTokenLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    content: list[ChatTokenLogprob]
    refusal: None = None


class PromptLogprob(msgspec.Struct, frozen=True):
    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class TextLogprobs(msgspec.Struct, frozen=True):
    """The completions format: parallel lists; ``text_offset`` counts characters of the choice's
    text (including an echoed prompt)."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TextPart(NamedTuple):
    """Consecutive tokens of a choice's text. ``offsets``: used once, in order; a stream's parts
    share them. A token without logprobs is the prompt's first."""

    tokens: Sequence[int]
    logprobs: Sequence[TokenLogprobs | None]
    offsets: Offsets


class _Spelling(NamedTuple):
    """JSON of one token. ``head`` and ``tail`` surround its logprob in the chat format; ``key``
    names it in the completions format, where texts must be unique."""

    head: bytes
    tail: bytes
    quoted: bytes
    key: bytes


Entries = Iterator[list[bytes]]  # JSON values, a bounded number at a time
_Write = Callable[[int, TokenLogprobs | None, int], bytes]


@functools.lru_cache(maxsize=4)
def logprob_writer(vocabulary: Vocabulary, *, by_id: bool = False) -> LogprobWriter:
    """Return the writer shared by all answers, which caches encoded tokens. ``by_id``: tokens are
    named by their ids."""
    return LogprobWriter(vocabulary.named_by_id() if by_id else vocabulary)


class LogprobWriter:
    """Writes JSON of one vocabulary's tokens. ``top``: how many likely tokens each entry has."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._spellings: dict[int, _Spelling] = {}

    def chat(
        self, tokens: Sequence[int], logprobs: Sequence[TokenLogprobs], top: int
    ) -> Iterator[bytes]:
        """Write a ``ChatLogprobs``, one entry for each token."""
        yield b'{"content":'
        yield from _array(self.chat_entries(tokens, logprobs, top))
        yield b',"refusal":null}'

    def chat_entries(
        self, tokens: Sequence[int], logprobs: Sequence[TokenLogprobs], top: int
    ) -> Entries:
        """Write a ``ChatTokenLogprob`` for each token."""
        return _sliced(self._chat_entry, tokens, logprobs, top)

    def text(self, parts: Sequence[TextPart], top: int) -> Iterator[bytes]:
        """Write a ``TextLogprobs`` of tokens in several parts."""

        def column(write: _Write, top: int) -> Iterator[bytes]:
            return _array(
                entries
                for part in parts
                for entries in _sliced(write, part.tokens, part.logprobs, top)
            )

        yield b'{"tokens":'
        yield from column(lambda token, entry, top: self._spelling(token).key, 0)
        yield b',"token_logprobs":'
        yield from column(lambda token, entry, top: _number(entry), 0)
        yield b',"top_logprobs":'
        yield from column(self._likely, top)
        yield b',"text_offset":'
        yield from _array(entries for part in parts for entries in _offsets(part))
        yield b"}"

    def prompt(
        self, prompt: Sequence[int], logprobs: Sequence[TokenLogprobs], top: int
    ) -> Iterator[bytes]:
        """Write ``PromptLogprobs``: by token id, for each prompt token; null for the first, which
        is not predicted, and for all if the prompt was not computed, because the answer could only
        be empty."""

        def entries() -> Entries:
            if not logprobs:
                yield [b"null"] * len(prompt)
                return
            yield [b"null"]
            yield from _sliced(self._prompt_entry, prompt[1:], logprobs, top)

        return _array(entries())

    # --- one token -------------------------------------------------------------------------------

    def _spelling(self, token: int) -> _Spelling:
        spelling = self._spellings.get(token)
        if spelling is None:
            if len(self._spellings) >= _MOST_SPELLINGS:
                self._spellings.clear()
            spelling = self._spellings[token] = _spelling_of(self._vocabulary, token)
        return spelling

    def _chat_entry(self, token: int, entry: TokenLogprobs | None, top: int) -> bytes:
        assert entry is not None
        pairs = list(entry.pairs(top))
        own, *numbers = _numbers([entry.logprob, *[logprob for _, logprob in pairs]])
        head, tail, _, _ = self._spelling(token)
        known, spelling = self._spellings, self._spelling
        pieces = [head, own, tail, b',"top_logprobs":[']
        for (other, _), number in zip(pairs, numbers, strict=True):
            head, tail, _, _ = known.get(other) or spelling(other)
            pieces += (head, number, tail, b"},")
        pieces[-1] = b"}]}" if pairs else b',"top_logprobs":[]}'
        return b"".join(pieces)

    def _likely(self, token: int, entry: TokenLogprobs | None, top: int) -> bytes:
        if entry is None:
            return b"null"
        likely: dict[bytes, bytes] = {}
        for other, number in _with_own(token, entry, top):
            likely[self._free_key(other, likely)] = number
        return b"{%b}" % b",".join([b"%b:%b" % pair for pair in likely.items()])

    def _free_key(self, token: int, taken: dict[bytes, bytes]) -> bytes:
        """If two tokens have the same text, the likelier one gets it."""
        key = self._spelling(token).key
        return b'"token_id:%d"' % token if key in taken else key

    def _prompt_entry(self, token: int, entry: TokenLogprobs | None, top: int) -> bytes:
        assert entry is not None
        return b"{%b}" % b",".join(
            [
                b'"%d":{"logprob":%b,"rank":%d,"decoded_token":%b}'
                % (
                    other,
                    number,
                    rank if rank <= top else entry.rank,
                    self._spelling(other).quoted,
                )
                for rank, (other, number) in enumerate(_with_own(token, entry, top), start=1)
            ]
        )


def _spelling_of(vocabulary: Vocabulary, token: int) -> _Spelling:
    quoted = _json(vocabulary.text_of(token))
    return _Spelling(
        b'{"token":%b,"logprob":' % quoted,
        b',"bytes":%b' % _json(list(vocabulary.bytes_of(token))),
        quoted,
        _json(vocabulary.key_of(token)),
    )


def _with_own(token: int, entry: TokenLogprobs, top: int) -> list[tuple[int, bytes]]:
    """Return the likeliest tokens, plus ``token`` itself if it is not among them."""
    pairs = list(entry.pairs(top))
    if all(other != token for other, _ in pairs):
        pairs.append((token, entry.logprob))
    numbers = _numbers([logprob for _, logprob in pairs])
    return [(other, number) for (other, _), number in zip(pairs, numbers, strict=True)]


def _numbers(logprobs: list[float]) -> list[bytes]:
    """Encode numbers together, which takes a fraction of the time."""
    if min(logprobs) < MIN_LOGPROB:
        logprobs = [max(logprob, MIN_LOGPROB) for logprob in logprobs]
    return _json(logprobs)[1:-1].split(b",")


def _number_of(logprob: float) -> bytes:
    return _json(max(logprob, MIN_LOGPROB))


def _number(entry: TokenLogprobs | None) -> bytes:
    return b"null" if entry is None else _number_of(entry.logprob)


def _sliced(
    write: _Write, tokens: Sequence[int], logprobs: Sequence[TokenLogprobs | None], top: int
) -> Entries:
    step = max(1, _SLICE_ENTRIES // (1 + top))
    for start in range(0, len(tokens), step):
        part = slice(start, start + step)
        yield [
            write(token, entry, top)
            for token, entry in zip(tokens[part], logprobs[part], strict=True)
        ]


def _offsets(part: TextPart) -> Entries:
    take = part.offsets.take
    for start in range(0, len(part.tokens), _SLICE_ENTRIES):
        yield [b"%d" % take(token) for token in part.tokens[start : start + _SLICE_ENTRIES]]


def _array(slices: Iterable[list[bytes]]) -> Iterator[bytes]:
    opening = b"["
    for entries in slices:
        yield opening + b",".join(entries)
        opening = b","
    yield b"]" if opening == b"," else b"[]"
