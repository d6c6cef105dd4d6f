"""A text is split as by transformers under the same name, or by the family's own tokenizer."""

from __future__ import annotations

import json

import pytest
from tokenizers import Regex, Tokenizer, pre_tokenizers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from service.gguf.pre_tokenizers import PRE_TOKENIZERS
from service.gguf.tokenizer import tokenizer_json
from tests.service.gguf.vocabularies import TEXTS, byte_level, keys_of_byte_level

DIGITS_FIRST = {"smollm", "starcoder", "refact", "command-r"}
# llama.cpp has the same pattern under both names.
SAME_AS = {"glm4": "smaug-bpe", "chatglm-bpe": "smaug-bpe"}


def oracle_of(name: str) -> pre_tokenizers.PreTokenizer:
    pattern = GGUF_PRE_TOKENIZER_SPLITS.get(SAME_AS.get(name, name))
    if pattern is None:  # GPT-2's own, for some after the digits
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
        digits = [pre_tokenizers.Digits(individual_digits=True)] if name in DIGITS_FIRST else []
        return pre_tokenizers.Sequence([*digits, byte_level])
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def pieces(name: str, text: str) -> list[str]:
    trained = byte_level(*PRE_TOKENIZERS[name].patterns)
    made = Tokenizer.from_str(json.dumps(tokenizer_json(keys_of_byte_level(trained, name))))
    return [piece for piece, _ in made.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", [name for name in PRE_TOKENIZERS if name != "deepseek-v3"])
def test_a_text_is_split_as_by_the_oracle(name: str) -> None:
    for text in TEXTS:
        expected = oracle_of(name).pre_tokenize_str(text)
        assert pieces(name, text) == [piece for piece, _ in expected], text


def test_deepseek_splits_numbers_and_scripts_from_the_rest() -> None:
    # llama.cpp gives the same tokens for a vocabulary trained on such pieces.
    found = pieces("deepseek-v3", "a.b,c! Say 100,000 (url)\n\nx")
    assert found == ["a", ".b", ",c", "!", "ĠSay", "Ġ", "100", ",", "000", "Ġ(", "url", ")ĊĊ", "x"]
    marked = [piece for piece in pieces("deepseek-v3", "文字abcカナ1") if piece.isascii()]
    assert marked == ["abc", "1"]
