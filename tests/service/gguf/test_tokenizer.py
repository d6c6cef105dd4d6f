"""The tokenizer that a GGUF file describes is the one that its keys were made from."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, normalizers
from transformers.integrations.gguf.gguf_tokenizer_mapping import (
    convert_gguf_tokenizer,
    sentencepiece_tokenizer,
)

from engine.architecture.errors import ConfigError
from service.gguf import tokenizer
from service.gguf.pre_tokenizers import PRE_TOKENIZERS
from service.gguf.tokenizer import TokenType, adds_bos, special_token, tokenizer_json
from tests.service.gguf.vocabularies import TEXTS, byte_level, keys_of, keys_of_byte_level


def made(keys: Any) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(tokenizer_json(keys)))


@pytest.mark.parametrize("name", ["gpt-2", "qwen2", "tekken", "smollm"])
def test_a_byte_level_vocabulary_gives_the_tokens_of_the_original(name: str) -> None:
    pre = PRE_TOKENIZERS[name]
    original = byte_level(*pre.patterns, digits=pre.digits)
    found = made(keys_of_byte_level(original, name))
    for text in TEXTS:
        ids = found.encode(text).ids
        assert ids == original.encode(text).ids, text
        assert found.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("name", ["qwen2", "qwen35", "deepseek-r1-qwen", "command-r", "olmo"])
def test_a_text_is_brought_into_the_normal_form_of_the_original(name: str) -> None:
    pre = PRE_TOKENIZERS[name]
    original = byte_level(*pre.patterns, digits=pre.digits)
    original.normalizer = normalizers.NFC()
    found = made(keys_of_byte_level(original, name))
    for text in TEXTS:
        apart = unicodedata.normalize("NFD", text)
        assert found.encode(apart).ids == found.encode(text).ids == original.encode(apart).ids


def test_a_text_keeps_its_form_where_the_original_changes_none() -> None:
    found = made(keys_of_byte_level(byte_level(*PRE_TOKENIZERS["llama-bpe"].patterns), "llama-bpe"))
    apart = unicodedata.normalize("NFD", "Köln")
    assert found.decode(found.encode(apart).ids) == apart


def test_a_llama_3_piece_that_is_a_token_is_not_merged_from_smaller_ones() -> None:
    original = byte_level(*PRE_TOKENIZERS["llama-bpe"].patterns)
    keys = keys_of_byte_level(original, "llama-bpe", bos_token_id=1)
    found = made(keys)
    assert json.loads(found.to_str())["model"]["ignore_merges"] is True
    # Its first token is added unless the file says otherwise.
    assert found.encode("Hello").ids[0] == 1
    assert found.encode("Hello", add_special_tokens=False).ids[0] != 1
    without = keys_of_byte_level(original, "llama-bpe", bos_token_id=1, add_bos_token=False)
    assert made(without).encode("Hello").ids == found.encode("Hello").ids[1:]


@pytest.mark.parametrize(
    ("pooling", "begins", "ends"), [(3, False, True), (3, True, True), (0, True, False)]
)
def test_the_end_token_is_added_to_the_texts_of_embedding_models_only(
    pooling: int, begins: bool, ends: bool
) -> None:
    original = byte_level(*PRE_TOKENIZERS["qwen2"].patterns)
    keys = keys_of_byte_level(
        original,
        "qwen2",
        **{"bos_token_id": 1, "add_bos_token": begins, "eos_token_id": 2, "add_eos_token": True},
    )
    own = {"general.architecture": "qwen3", "qwen3.pooling_type": pooling}
    keys.header.keys.update(own)
    found = made(keys)
    ids = original.encode("Hello").ids
    assert found.encode("Hello").ids == [*[1] * begins, *ids, *[2] * ends]
    assert found.encode("Hello", add_special_tokens=False).ids == ids
    pair = found.encode("Hello", "Hello")
    assert (pair.ids, pair.type_ids[-1]) == (2 * [*[1] * begins, *ids, *[2] * ends], 1)


def sentence_piece_keys(**more: Any) -> Any:
    """A vocabulary as SentencePiece trains it: bytes, pieces with falling scores, letters."""
    pieces = ["▁t", "he", "▁a", "in", "▁the", "er", "▁in", "▁w", "▁wor", "or", "ld", "▁world", "lo"]
    letters = sorted({*"▁thewainrldoHl,!.2\n"} | set("the world"))
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = [letter for letter in letters if letter != " "]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256]
    types += [TokenType.NORMAL] * (len(pieces) + len(letters))
    scores = [0.0] * 259 + [-float(place) for place in range(len(pieces) + len(letters))]
    values: dict[str, Any] = {
        "model": "llama",
        "tokens": [*tokens, *pieces, *letters],
        "scores": np.array(scores, np.float32),
        "token_type": np.array(types, np.int32),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    return keys_of(**(values | more))


@pytest.mark.parametrize(
    "text", ["the world in a word", "Hello, world!", "in the 東京 world\n2.", "hell</s>or<s>", ""]
)
def test_a_sentence_piece_vocabulary_gives_the_tokens_of_transformers(text: str) -> None:
    keys = sentence_piece_keys()
    values = {name.removeprefix("tokenizer.ggml."): v for name, v in keys.header.keys.items()}
    oracle = sentencepiece_tokenizer(
        {"tokens": values["tokens"], "scores": values["scores"].tolist()}
    )
    found = made(keys).encode(text, add_special_tokens=False).ids
    if "<" not in text:  # only ours knows the control tokens here
        assert found == oracle.encode(text, add_special_tokens=False)
    else:
        assert {1, 2} <= set(found)
    assert made(keys).encode(text).ids == [1, *found]
    if "<" not in text:
        assert made(keys).decode(found) == text


GEMMA_TEXTS = (
    "the  world in   a word",
    "in\n\nthe\nworld",
    " the world 東京",
    "<start_of_turn>the world<end_of_turn>\n",
    "",
)


def gemma_keys(architecture: str, **more: Any) -> Any:
    """A vocabulary as Gemma's: its order says what is merged first, its scores do not."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    spaces = "  " if architecture == "gemma3" else "▁▁"
    runs = ["\n\n", spaces, spaces + spaces[0]]
    pieces = ["in", "▁t", "he", "▁the", "er", "or", "wor", "ld", "world", "▁world", "▁▁t"]
    letters = [*"▁thewainrldo\n"]
    letters = sorted({*letters})
    tokens = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *runs, *pieces, *letters]
    types = [TokenType.CONTROL] * 3 + [TokenType.UNKNOWN] + [TokenType.CONTROL] * 2
    types += [TokenType.BYTE] * 256 + [TokenType.USER_DEFINED] * len(runs)
    types += [TokenType.NORMAL] * (len(pieces) + len(letters))
    values: dict[str, Any] = {
        "model": "llama" if architecture == "gemma3" else "gemma4",
        "tokens": tokens,
        "scores": np.array([-1000.0 + number for number in range(len(tokens))], np.float32),
        "token_type": np.array(types, np.int32),
        "bos_token_id": 2,
        "eos_token_id": 1,
        "unknown_token_id": 3,
        "add_space_prefix": False,
        "add_bos_token": True,
    }
    if architecture == "gemma4":
        values["merges"] = ["\n \n", "▁ ▁", "▁▁ ▁", "i n", "▁ t", "h e", "▁t he", "o r", "w or"]
    keys = keys_of(**(values | more))
    keys.header.keys["general.architecture"] = architecture
    return keys


@pytest.mark.parametrize("architecture", ["gemma3", "gemma4"])
@pytest.mark.parametrize("text", GEMMA_TEXTS)
def test_gemmas_vocabulary_gives_the_tokens_of_transformers(architecture: str, text: str) -> None:
    keys = gemma_keys(architecture)
    values: dict[str, Any] = {
        name.removeprefix("tokenizer.ggml."): value.tolist() if hasattr(value, "tolist") else value
        for name, value in keys.header.keys.items()
    }
    values["tokenizer_type"] = values["model"]
    oracle, _ = convert_gguf_tokenizer(architecture, values)
    found = made(keys).encode(text, add_special_tokens=False)
    assert found.ids == oracle.encode(text, add_special_tokens=False).ids
    assert made(keys).encode(text).ids == [2, *found.ids]
    assert made(keys).decode(found.ids, skip_special_tokens=False) == text


def test_a_space_comes_first_unless_the_file_says_not() -> None:
    spaced = made(sentence_piece_keys()).encode("the", add_special_tokens=False).tokens
    assert spaced == ["▁the"]
    bare = made(sentence_piece_keys(add_space_prefix=False))
    assert bare.encode("the", add_special_tokens=False).tokens == ["t", "he"]


def test_user_defined_tokens_are_found_in_texts_and_are_not_special() -> None:
    original = byte_level(*PRE_TOKENIZERS["qwen2"].patterns)
    keys = keys_of_byte_level(original, "qwen2")
    tokens = keys.texts("tokenizer.ggml.tokens")
    types = keys.header.keys["tokenizer.ggml.token_type"]
    assert isinstance(types, np.ndarray)
    types[2] = TokenType.USER_DEFINED
    found = made(keys)
    assert 2 in found.encode(f"a{tokens[2]}b").ids
    assert tokens[2] in found.decode([2])
    assert found.decode([1]) == ""


def test_a_whole_tokenizer_in_the_file_is_taken_as_it_is() -> None:
    original = byte_level(r"\p{L}+|\s+|\S")
    keys = keys_of_byte_level(original, "unknown to us")
    keys.header.keys["tokenizer.huggingface.json"] = original.to_str()
    assert made(keys).encode(TEXTS[0]).ids == original.encode(TEXTS[0]).ids


def test_special_tokens_are_named_by_their_text() -> None:
    keys = sentence_piece_keys()
    assert special_token(keys, "eos") == "</s>"
    assert special_token(keys, "padding") is None
    assert adds_bos(keys)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (keys_of(), "has no tokenizer.ggml.model"),
        (keys_of(model="t5"), "'t5' is not supported; put the model's tokenizer.json next to"),
        (keys_of(model="gpt2", pre="mine"), r"'mine' is not supported \(supported: gpt-2"),
        (keys_of(model="gpt2", pre="gpt-2"), "has no tokenizer.ggml.tokens"),
        (keys_of(model="gpt2", pre="gpt-2", tokens=["a", "a"]), "has a token twice"),
        (
            keys_of(model="gpt2", pre="gpt-2", tokens=["a", "b", "ab"]),
            "has no tokenizer.ggml.merges",
        ),
        (
            keys_of(model="gpt2", pre="gpt-2", tokens=["a", "b"], merges=["a b"]),
            "element 0 of tokenizer.ggml.merges must be two tokens that make one, not 'a b'",
        ),
        (
            keys_of(model="gpt2", pre="gpt-2", tokens=["a"], token_type=np.array([1, 1])),
            "token_type must be an array of 1 numbers, one a token",
        ),
        (
            keys_of(model="gpt2", pre="gpt-2", tokens=["a"], bos_token_id=1, add_bos_token=True),
            "bos_token_id must be an integer from 0 to 0, not 1",
        ),
        (keys_of(model="llama", tokens=["<unk>"]), "scores must be an array of 1 numbers"),
        (
            keys_of(model="llama", tokens=["a"], scores=np.array([0.0])),
            "has no unknown token",
        ),
        (
            keys_of(model="llama", tokens=["<unk>", "a" * 5000], scores=np.array([0.0, 0.0])),
            "of at most 512 characters",
        ),
    ],
)
def test_what_describes_no_tokenizer_is_refused(keys: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        tokenizer_json(keys)


def test_a_vocabulary_that_would_take_minutes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = ["<unk>", *("a" * count for count in range(1, 500))]
    keys = keys_of(model="llama", tokens=tokens, scores=np.zeros(len(tokens), np.float32))
    monkeypatch.setattr(tokenizer, "_MAX_MERGES", 10_000)
    with pytest.raises(ConfigError, match="can be made of others in more than 10000 ways"):
        tokenizer_json(keys)
    monkeypatch.setattr(tokenizer, "_MAX_SQUARES", 10_000)
    with pytest.raises(ConfigError, match="are too long"):
        tokenizer_json(keys)


def test_a_first_token_that_no_text_has_is_refused() -> None:
    keys = gemma_keys("gemma3")
    spaces = keys.texts("tokenizer.ggml.tokens").index("  ")
    keys.header.keys["tokenizer.ggml.bos_token_id"] = spaces
    with pytest.raises(ConfigError, match="bos_token_id is the token '  '"):
        tokenizer_json(keys)


@pytest.mark.parametrize("text", ["[", "[1]", "[" * 100_000])
def test_a_whole_tokenizer_that_is_not_a_json_object_is_refused(text: str) -> None:
    keys = keys_of()
    keys.header.keys["tokenizer.huggingface.json"] = text
    with pytest.raises(ConfigError, match=r"tokenizer\.huggingface\.json"):
        tokenizer_json(keys)
