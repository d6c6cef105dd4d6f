"""A text is split as by transformers under the same name, or by the family's own tokenizer."""

from __future__ import annotations

import json
import random

import pytest
from tokenizers import Regex, Tokenizer, pre_tokenizers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from service.gguf.pre_tokenizers import PRE_TOKENIZERS
from service.gguf.tokenizer import tokenizer_json
from tests.service.gguf.vocabularies import TEXTS, byte_level, keys_of_byte_level

DIGITS_FIRST = {"smollm", "starcoder", "refact", "command-r"}
# llama.cpp has the same pattern under both names.
SAME_AS = {"glm4": "smaug-bpe", "chatglm-bpe": "smaug-bpe", "hunyuan": "qwen2"}


# For a vocabulary trained on such pieces, llama.cpp gives the same tokens. transformers knows no
# pattern of these names.
PIECES = {
    "hunyuan-dense": "a .b ,c ! ĠI 'LL Ġ 100 , 000 Ġ( url )ĊĊ x Ġ æĸĩ a 1",
    "deepseek-v3": "a .b ,c ! ĠI 'LL Ġ 100 , 000 Ġ( url )ĊĊ x Ġ æĸĩ a 1",
    "deepseek-llm": "a . b , c ! ĠI ' LL Ġ 1 0 0 , 0 0 0 Ġ( url ) Ċ Ċ x Ġ æĸĩ a 1",
    "deepseek-coder": "a . b , c ! ĠI ' LL Ġ 1 0 0 , 0 0 0 Ġ( url ) Ċ Ċ x Ġ æĸĩ a 1",
    "bailingmoe": "a .b ,c ! ĠI 'LL Ġ 1 0 0 , 0 0 0 Ġ( url )ĊĊ x Ġæĸĩa 1",
    "bailingmoe2": "a .b ,c ! ĠI 'LL Ġ 1 0 0 , 0 0 0 Ġ( url )ĊĊ x Ġæĸĩa 1",
    "kimi-k2": "a .b ,c ! ĠI'LL Ġ 100 , 000 Ġ( url )ĊĊ x Ġ æĸĩ a 1",
    "seed-coder": "a .b ,c ! ĠI 'LL Ġ 1 0 0 , 0 0 0 Ġ( url ) ĊĊ x Ġæĸĩa 1",
}


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


@pytest.mark.parametrize("name", [name for name in PRE_TOKENIZERS if name not in PIECES])
def test_a_text_is_split_as_by_the_oracle(name: str) -> None:
    for text in TEXTS:
        expected = oracle_of(name).pre_tokenize_str(text)
        assert pieces(name, text) == [piece for piece, _ in expected], text


@pytest.mark.parametrize("name", PIECES)
def test_a_text_is_split_as_by_llama_cpp(name: str) -> None:
    assert pieces(name, "a.b,c! I'LL 100,000 (url)\n\nx 文a1") == PIECES[name].split(" ")


@pytest.mark.timeout(30)  # quadratic patterns take minutes
@pytest.mark.parametrize("name", {pre: name for name, pre in PRE_TOKENIZERS.items()}.values())
@pytest.mark.parametrize("repeated", [" ", "\n"])
def test_a_long_text_takes_linear_time(name: str, repeated: str) -> None:
    text = f"1{repeated * 200_000}1"
    assert len("".join(pieces(name, text))) >= len(text)


def test_spaces_at_the_end_are_split_off_as_in_the_original_pattern() -> None:
    """DeepSeek LLM's takes quadratic time. A pattern before it has split off the ends of lines."""
    ours, original = (
        pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        for pattern in (r"(?<!\s)\s++$", r"\s+$")
    )
    assert r"(?<!\s)\s++$" in PRE_TOKENIZERS["deepseek-llm"].patterns
    draw = random.Random(0)
    for _ in range(2000):
        text = "".join(draw.choices(" \t\u00a0\u3000a1", k=draw.randint(1, 12)))
        assert ours.pre_tokenize_str(text) == original.pre_tokenize_str(text)
