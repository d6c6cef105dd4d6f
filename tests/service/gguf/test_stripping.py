"""Special tokens strip as in the published tokenizers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from engine.gguf.keys import GgufKeys
from service.gguf.pre_tokenizers import PRE_TOKENIZERS
from service.gguf.stripping import NONE, stripping_of
from service.gguf.tokenizer import TokenType, tokenizer_json
from tests.service.gguf.vocabularies import byte_level, keys_of, keys_of_byte_level

PHI3 = {"general.architecture": "phi3"}


def named(keys: GgufKeys, more: dict[str, Any]) -> GgufKeys:
    keys.header.keys.update(more)
    return keys


def phi3_keys() -> GgufKeys:
    special = ["<unk>", "<s>", "</s>", "<|endoftext|>", "<|user|>", "<|end|>", "<|assistant|>"]
    tokens = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "▁a"]
    types = [
        TokenType.UNKNOWN,
        TokenType.CONTROL,
        TokenType.USER_DEFINED,
        *[TokenType.CONTROL] * (len(special) - 3),
        *[TokenType.BYTE] * 256,
        *[TokenType.NORMAL] * 3,
    ]
    return keys_of(
        model="llama",
        tokens=tokens,
        scores=np.zeros(len(tokens), np.float32),
        token_type=np.array(types, np.int32),
        unknown_token_id=0,
        add_bos_token=False,
    )


def tokens_of(keys: GgufKeys, text: str) -> list[str]:
    made = Tokenizer.from_str(json.dumps(tokenizer_json(keys)))
    return [made.id_to_token(number) for number in made.encode(text).ids]


@pytest.mark.parametrize(
    "more",
    [PHI3, {"general.architecture": "llama", "general.name": "unsloth_Phi-3-mini"}],
)
def test_phi_3_skips_white_space_after_the_tokens_of_a_chat(more: dict[str, Any]) -> None:
    text = "<|user|>\n a <|end|>\n<|assistant|>\n"
    expected = ["<|user|>", "▁a", "▁", "<|end|>", "<|assistant|>"]
    assert tokens_of(named(phi3_keys(), more), text) == expected
    assert tokens_of(named(phi3_keys(), PHI3), "</s>\n\na") == ["</s>", "▁a"]
    for kept in ("<s>", "<unk>", "<|endoftext|>"):
        found = tokens_of(named(phi3_keys(), PHI3), f"{kept}\na")
        assert found == [kept, "▁", "<0x0A>", "a"]


@pytest.mark.parametrize("name", ["Delphi-3 7B", "Phi-2", ""])
def test_other_models_keep_white_space(name: str) -> None:
    keys = named(phi3_keys(), {"general.architecture": "llama", "general.name": name})
    assert stripping_of(keys) == NONE
    assert tokens_of(keys, "<|user|>\na") == ["<|user|>", "▁", "<0x0A>", "a"]


def test_byte_level_tokens_of_phi_3s_architecture_keep_white_space() -> None:
    """Such as Phi-4 mini's."""
    keys = keys_of_byte_level(byte_level(*PRE_TOKENIZERS["gpt-4o"].patterns), "gpt-4o")
    found = tokens_of(named(keys, {**PHI3, "general.name": "Phi-3"}), "<|im_start|>\na")
    assert found == ["<|im_start|>", "Ċ", "a"]


def test_phi_4_skips_white_space_around_special_tokens() -> None:
    original = byte_level(*PRE_TOKENIZERS["dbrx"].patterns)
    keys = keys_of_byte_level(original, "dbrx")
    tokens = keys.texts("tokenizer.ggml.tokens")
    special = ["<|im_sep|>", "<|dummy_85|>", "<think>"]
    types = [*keys.numbers("tokenizer.ggml.token_type"), *[TokenType.CONTROL] * 3]
    keys.header.keys["tokenizer.ggml.token_type"] = np.array(types, np.int32)
    keys.header.keys["tokenizer.ggml.tokens"] = [*tokens, *special]
    text = "<|im_start|>a<|im_sep|>  a\n <|im_end|> <|im_start|><think>\n"
    expected = ["<|im_start|>", "a", "<|im_sep|>", "a", "<|im_end|>", "<|im_start|>"]
    expected += ["<think>", "Ċ"]
    assert tokens_of(named(keys, PHI3), text) == expected
