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


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_a_text_is_split_as_by_the_oracle(name: str) -> None:
    trained = byte_level(PRE_TOKENIZERS[name].pattern)
    made = Tokenizer.from_str(json.dumps(tokenizer_json(keys_of_byte_level(trained, name))))
    for text in TEXTS:
        found = made.pre_tokenizer.pre_tokenize_str(text)
        expected = oracle_of(name).pre_tokenize_str(text)
        assert [piece for piece, _ in found] == [piece for piece, _ in expected], text
