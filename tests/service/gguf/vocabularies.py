"""Tokenizers as their makers write them, and their keys as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.gguf.container import GgufHeader
from engine.gguf.keys import GgufKeys
from service.gguf.tokenizer import TokenType

TEXTS = (
    "Hello, world! It's 2026; that'll be 12345 words.",
    "  leading and trailing  \n\n\tTabs\tand\r\nlines ",
    "Grüße aus Köln, 東京で会いましょう, привет, مرحبا 👋🏽",
    "<|im_start|>user\nI'VE said: $x^2 + y_1 = 3.14$<|im_end|>\n",
    "",
    "camelCase HTTPServer snake_case 0x1F",
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def keys_of(**keys: Any) -> GgufKeys:
    return GgufKeys(
        GgufHeader(
            Path("tiny.gguf"),
            3,
            {f"tokenizer.ggml.{name}": value for name, value in keys.items()},
            {},
        )
    )


def byte_level(*patterns: str, digits: bool = False, size: int = 600) -> Tokenizer:
    """Train a byte-level BPE whose pieces ``patterns`` find, one after the other."""
    tokenizer = Tokenizer(models.BPE())
    splits = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *splits,
            *(pre_tokenizers.Split(Regex(each), behavior="isolated") for each in patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


def keys_of_byte_level(tokenizer: Tokenizer, pre: str, **more: Any) -> GgufKeys:
    made = json.loads(tokenizer.to_str())
    texts = sorted(made["model"]["vocab"], key=made["model"]["vocab"].get)
    return keys_of(
        model="gpt2",
        pre=pre,
        tokens=texts,
        token_type=np.array(
            [TokenType.CONTROL if text in SPECIAL else TokenType.NORMAL for text in texts], np.int32
        ),
        merges=[" ".join(pair) for pair in made["model"]["merges"]],
        **more,
    )
