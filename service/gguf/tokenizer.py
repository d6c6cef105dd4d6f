"""The ``tokenizer.json`` that corresponds to the keys of a GGUF file.

Three kinds of vocabulary: byte-level BPE ("gpt2") with its merges, SentencePiece's BPE ("llama")
with scores, from which the merges follow, and Gemma 4's, which is SentencePiece's with merges.
"""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.gguf.keys import ARCHITECTURE_KEY, TOKENS_KEY, GgufKeys
from service.gguf.pooling import declared_pooling
from service.gguf.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from service.gguf.stripping import KIND, stripping_of

WHOLE = "tokenizer.huggingface.json"
_PRE = "tokenizer.ggml.pre"
_MERGES = "tokenizer.ggml.merges"
_SCORES = "tokenizer.ggml.scores"
_TYPES = "tokenizer.ggml.token_type"
_SPACE = "▁"
# Merges are sought at every place of a token, in time that grows with its length's square.
_MAX_TOKEN_CHARS = 1 << 9
_MAX_SQUARES = 1 << 28  # of the lengths of all tokens
_MAX_MERGES = 1 << 21
_WITHOUT = "put the model's tokenizer.json next to the file, or serve the original checkpoint"


class TokenType(IntEnum):
    """As in ``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def tokenizer_json(keys: GgufKeys) -> dict[str, Any]:
    """Raises ConfigError, and UnsupportedError for a tokenizer that only its own
    ``tokenizer.json`` describes."""
    if keys.has(WHOLE):
        return _whole(keys)
    kind = keys.text(KIND)
    if kind == "gpt2":
        return _byte_level(keys)
    if kind == "llama":
        return _sentence_piece(keys)
    if kind == "gemma4":
        vocabulary = _vocabulary(keys.texts(TOKENS_KEY), keys)
        return _with_space_marks(
            keys, vocabulary, _stated_merges(keys, vocabulary), adds_space=False
        )
    raise UnsupportedError(f"{keys.source}: {KIND} {kind!r} is not supported; {_WITHOUT}")


def special_token(keys: GgufKeys, name: str) -> str | None:
    """``name``: bos, eos, unknown, padding. Return the token's text; None if there is none."""
    key, tokens = f"tokenizer.ggml.{name}_token_id", keys.texts(TOKENS_KEY)
    if not keys.has(key):
        return None
    return tokens[keys.integer(key, low=0, high=len(tokens) - 1)] if tokens else None


def adds_bos(keys: GgufKeys) -> bool:
    default = keys.text(KIND, "") == "llama" or (
        (pre := PRE_TOKENIZERS.get(keys.text(_PRE, ""))) is not None and pre.adds_bos
    )
    return keys.flag("tokenizer.ggml.add_bos_token", default)


def _adds_eos(keys: GgufKeys) -> bool:
    """True only for embedding models: after the end of its prompt, a model generates nothing of
    use."""
    return declared_pooling(keys) is not None and keys.flag("tokenizer.ggml.add_eos_token", False)


def _whole(keys: GgufKeys) -> dict[str, Any]:
    try:
        found = json.loads(keys.text(WHOLE))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{keys.source}: {WHOLE} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise keys.error(WHOLE, "a JSON object", found)
    return found


def _vocabulary(tokens: list[str], keys: GgufKeys) -> dict[str, int]:
    if not tokens:
        raise ConfigError(f"{keys.source} has no {TOKENS_KEY}; {_WITHOUT}")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise UnsupportedError(f"{keys.source}: {TOKENS_KEY} has a token twice; {_WITHOUT}")
    return vocabulary


def _types(keys: GgufKeys, count: int) -> list[float]:
    types = keys.numbers(_TYPES)
    if types and len(types) != count:
        raise keys.error(_TYPES, f"an array of {count} numbers, one a token", types)
    return types or [TokenType.NORMAL] * count


def _added_tokens(keys: GgufKeys, vocabulary: dict[str, int]) -> list[dict[str, Any]]:
    """The tokens that are found in a text before anything else. Runs of ▁ are made by merges, as
    spaces become ▁ only later."""
    types = _types(keys, len(vocabulary))
    shown = {TokenType.UNKNOWN, TokenType.CONTROL, TokenType.USER_DEFINED}
    stripping = stripping_of(keys)
    return [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": stripping.left and token not in stripping.unless,
            "rstrip": stripping.right and token not in stripping.unless,
            "normalized": False,
            "special": types[number] != TokenType.USER_DEFINED,
        }
        for token, number in vocabulary.items()
        if types[number] in shown and token.strip(_SPACE)
    ]


def _byte_level(keys: GgufKeys) -> dict[str, Any]:
    name = keys.text(_PRE, "")
    if not name:
        raise ConfigError(f"{keys.source} has no {_PRE}; {_WITHOUT}")
    pre = PRE_TOKENIZERS.get(name)
    if pre is None:
        raise UnsupportedError(
            f"{keys.source}: {_PRE} {name!r} is not supported (supported: "
            f"{', '.join(PRE_TOKENIZERS)}); {_WITHOUT}"
        )
    vocabulary = _vocabulary(keys.texts(TOKENS_KEY), keys)
    merges = _stated_merges(keys, vocabulary)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(keys, vocabulary),
        "normalizer": {"type": "NFC"} if pre.nfc else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _splits(pre)},
        "post_processor": _added_around(keys, vocabulary),
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": False,
        },
        "model": _bpe(vocabulary, merges, ignore_merges=pre.ignore_merges),
    }


def _stated_merges(keys: GgufKeys, vocabulary: dict[str, int]) -> list[list[str]]:
    types = _types(keys, len(vocabulary))
    if not keys.has(_MERGES) and any(
        len(token) > 1 and types[number] == TokenType.NORMAL for token, number in vocabulary.items()
    ):
        raise ConfigError(f"{keys.source} has no {_MERGES}; {_WITHOUT}")
    merges = []
    for number, merge in enumerate(keys.texts(_MERGES)):
        place = merge.find(" ", 1)  # a token may begin with a space
        pair = [merge[:place], merge[place + 1 :]]
        if place < 0 or not vocabulary.keys() >= {*pair, "".join(pair)}:
            raise keys.error(f"element {number} of {_MERGES}", "two tokens that make one", merge)
        merges.append(pair)
    return merges


def _splits(pre: PreTokenizer) -> list[dict[str, Any]]:
    digits = [{"type": "Digits", "individual_digits": True}] if pre.digits else []
    return [
        *digits,
        *(
            {
                "type": "Split",
                "pattern": {"Regex": pattern},
                "behavior": "Isolated",
                "invert": False,
            }
            for pattern in pre.patterns
        ),
        {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": False,
            "use_regex": False,
        },
    ]


def _bpe(
    vocabulary: dict[str, int],
    merges: list[list[str]],
    *,
    ignore_merges: bool = False,
    unknown: str | None = None,
) -> dict[str, Any]:
    """``unknown``: the token for what no other covers; then there is a token for each byte."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": unknown is not None,
        "byte_fallback": unknown is not None,
        "ignore_merges": ignore_merges,
        "vocab": vocabulary,
        "merges": merges,
    }


def _added_around(keys: GgufKeys, vocabulary: dict[str, int]) -> dict[str, Any] | None:
    """Adds the first and the last token of every text, if the model has them."""
    bos = special_token(keys, "bos") if adds_bos(keys) else None
    eos = special_token(keys, "eos") if _adds_eos(keys) else None
    for name, token, place in (("bos", bos, "begin"), ("eos", eos, "end")):
        if token is not None and token not in vocabulary:
            raise ConfigError(
                f"{keys.source}: tokenizer.ggml.{name}_token_id is the token {token!r}, which a "
                f"text cannot {place} with"
            )
    added = [token for token in (bos, eos) if token is not None]
    if not added:
        return None

    def around(sequence: str, kind: int) -> list[dict[str, Any]]:
        first, last = (
            [] if token is None else [{"SpecialToken": {"id": token, "type_id": kind}}]
            for token in (bos, eos)
        )
        return [*first, {"Sequence": {"id": sequence, "type_id": kind}}, *last]

    return {
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": [*around("A", 0), *around("B", 1)],
        "special_tokens": {
            token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]} for token in added
        },
    }


def _sentence_piece(keys: GgufKeys) -> dict[str, Any]:
    tokens = keys.texts(TOKENS_KEY)
    scores = keys.numbers(_SCORES)
    if tokens and len(scores) != len(tokens):
        raise keys.error(_SCORES, f"an array of {len(tokens)} numbers, one a token", scores)
    if keys.text(ARCHITECTURE_KEY, "").startswith("gemma"):
        # Gemma's ids, not its scores, give the order of merges. Its tokens of several spaces are
        # stored as spaces instead of ▁.
        tokens = [_SPACE * len(token) if token == " " * len(token) else token for token in tokens]
        scores = [-float(number) for number in range(len(tokens))]
    vocabulary = _vocabulary(tokens, keys)
    return _with_space_marks(
        keys,
        vocabulary,
        _merges(keys, vocabulary, scores),
        adds_space=keys.flag("tokenizer.ggml.add_space_prefix", True),
    )


def _with_space_marks(
    keys: GgufKeys, vocabulary: dict[str, int], merges: list[list[str]], *, adds_space: bool
) -> dict[str, Any]:
    """Return the tokenizer of a vocabulary that has ▁ for a space. ``adds_space``: one is put
    before every text."""
    prepend = [{"type": "Prepend", "prepend": _SPACE}] if adds_space else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if adds_space else []
    unknown = special_token(keys, "unknown") or "<unk>"
    if unknown not in vocabulary:
        raise ConfigError(f"{keys.source}: {TOKENS_KEY} has no unknown token; {_WITHOUT}")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(keys, vocabulary),
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                *prepend,
                {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": _added_around(keys, vocabulary),
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                *strip,
            ],
        },
        "model": _bpe(vocabulary, merges, unknown=unknown),
    }


def _merges(keys: GgufKeys, vocabulary: dict[str, int], scores: list[float]) -> list[list[str]]:
    """Return every pair of tokens that make a third, that of the highest score first: SentencePiece
    merges the adjacent pair whose token has the highest score."""
    _check_lengths(keys, vocabulary)
    found = []
    for token, number in vocabulary.items():
        for place in range(1, len(token)):
            left, right = token[:place], token[place:]
            if left in vocabulary and right in vocabulary:
                order = (-scores[number], vocabulary[left], vocabulary[right])
                found.append((order, [left, right]))
        if len(found) > _MAX_MERGES:
            raise UnsupportedError(
                f"{keys.source}: the tokens of {TOKENS_KEY} can be made of others in more than "
                f"{_MAX_MERGES} ways; {_WITHOUT}"
            )
    return [pair for _, pair in sorted(found, key=lambda one: one[0])]


def _check_lengths(keys: GgufKeys, vocabulary: dict[str, int]) -> None:
    squares = 0
    for token, number in vocabulary.items():
        squares += len(token) ** 2
        if len(token) > _MAX_TOKEN_CHARS:
            raise keys.error(
                f"element {number} of {TOKENS_KEY}",
                f"of at most {_MAX_TOKEN_CHARS} characters",
                token,
            )
    if squares > _MAX_SQUARES:
        raise UnsupportedError(
            f"{keys.source}: the tokens of {TOKENS_KEY} are too long; {_WITHOUT}"
        )
