"""Small real tokenizers of every decoder family that the service knows."""

from __future__ import annotations

import functools
import json
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models

from service.checkpoint.vocabulary import Vocabulary, read_vocabulary
from tests.service.tiny_model import build_tokenizer

_PIECES = ["▁", "▁the", "▁fox", "s", "▁▁", "é", "你好", "▁🚀", "ing", "a▁b", "\n", "�"]


def _sentencepiece(decoder: Any) -> Tokenizer:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *_PIECES]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False, normalized=False)])
    return tokenizer


@functools.cache
def tokenizer(name: str) -> Tokenizer:
    match name:
        case "byte-level":
            return build_tokenizer()
        case "llama":  # strips the space that SentencePiece puts before a text
            return _sentencepiece(
                decoders.Sequence(
                    [
                        decoders.Replace("▁", " "),
                        decoders.ByteFallback(),
                        decoders.Fuse(),
                        decoders.Strip(" ", 1, 0),
                    ]
                )
            )
        case "gemma":  # keeps it
            return _sentencepiece(
                decoders.Sequence(
                    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
                )
            )
        case "metaspace":
            return _sentencepiece(decoders.Metaspace("▁", "always", True))
    raise KeyError(name)


NAMES = ("byte-level", "llama", "gemma", "metaspace")


@functools.cache
def vocabulary(name: str) -> Vocabulary:
    fast = tokenizer(name)
    size = max(fast.get_vocab(with_added_tokens=True).values()) + 1
    special = frozenset(
        index for index, token in fast.get_added_tokens_decoder().items() if token.special
    )
    tokens = [fast.id_to_token(index) for index in range(size)]
    return read_vocabulary(tokens, special, json.loads(fast.to_str())["decoder"])
