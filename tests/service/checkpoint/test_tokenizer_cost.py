"""Which tokenizers the event loop may use."""

from __future__ import annotations

import base64
import json
import struct
import unicodedata
from typing import Any

import pytest
from tokenizers import normalizers

from engine.architecture.tokenizer_files import read_tokenizer
from pocket import MODEL_DIR
from service.checkpoint.tokenizer_cost import is_cheap

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}


def split(regex: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated"}


def replace(text: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": " "}, "content": text}


def sequence(name: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", name: list(steps)}


def charsmap(replacement: str) -> bytes:
    """A map as SentencePiece's compiler writes it, a trie and texts: "a" becomes this text."""
    trie = [0] * 512
    trie[0] = 256 << 10  # the root: its children begin at 256
    trie[256 ^ ord("a")] = ord("a") | 1 << 8 | 1 << 10  # the next unit is its leaf: text 0
    return struct.pack("<I512I", 4 * len(trie), *trie) + replacement.encode() + b"\0"


def precompiled(charsmap: bytes) -> dict[str, Any]:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}


NFKC_LONGEST = unicodedata.normalize("NFKC", "\ufdfa")  # 33 bytes
BPE = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
BERT = {
    "model": {
        "type": "WordPiece",
        "max_input_chars_per_word": 100,
        "continuing_subword_prefix": "##",
    },
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {}}, {"Sequence": {}}, {"SpecialToken": {}}],
        "pair": [{"SpecialToken": {}}] * 5,
        "special_tokens": {"[CLS]": {"ids": [101]}, "[SEP]": {"ids": [102]}},
    },
}
T5 = {
    "model": {"type": "Unigram", "vocab": [["a", -1.0], ["\u2581the", -2.0]]},
    "normalizer": sequence("normalizers", precompiled(charsmap(NFKC_LONGEST)), replace("\u2581")),
    "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581"},
}
CHEAP = {
    "nothing": {},
    "Llama 3": {"pre_tokenizer": sequence("pretokenizers", split(LLAMA3), BYTE_LEVEL)},
    "prepended": {"normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "\u2581"})},
    "replaced": {"normalizer": replace("\u2581")},
    "BERT": BERT,
    "T5": T5,
    "spaces": {"normalizer": {**replace("\u2581"), "pattern": {"Regex": " {2,}"}}},
}
COSTLY = {
    "unknown": {"pre_tokenizer": sequence("pretokenizers", split("(a|aa)+$"), BYTE_LEVEL)},
    "alone": {"pre_tokenizer": split("(a|aa)+$")},
    "much prepended": {"normalizer": {"type": "Prepend", "prepend": "a" * 10**6}},
    "much replaced": {"normalizer": replace("a" * 10**6)},
    "again and again": {"normalizer": sequence("normalizers", *[replace("  ")] * 5)},
    "by a regex": {"normalizer": {"type": "Replace", "pattern": {"Regex": "(a|aa)+$"}}},
    "between all": {"normalizer": {**replace("abcd"), "pattern": {"String": ""}}},
    "many steps": {"normalizer": sequence("normalizers", *[{"type": "NFC"}] * 1000)},
    "many pre-tokenizers": {"pre_tokenizer": sequence("pretokenizers", *[BYTE_LEVEL] * 1000)},
    "much byte by byte": {"pre_tokenizer": sequence("pretokenizers", *[BYTE_LEVEL] * 3)},
    "a map to long texts": {"normalizer": precompiled(charsmap("b" * 5000))},
    "maps one after the other": {
        "normalizer": sequence("normalizers", *[precompiled(charsmap("a" * 30))] * 2)
    },
    "a map and replacements": {
        "normalizer": sequence(
            "normalizers", precompiled(charsmap(" " * 30)), *[replace("    ")] * 2
        )
    },
    "replacements of many bytes": {
        "normalizer": sequence("normalizers", *[replace("\ufdfa" * 4)] * 2)
    },
    "a replacement and NFKC": {
        "normalizer": sequence("normalizers", replace("\ufdfa" * 4), {"type": "NFKC"})
    },
    "a map and bytes": {
        "normalizer": sequence(
            "normalizers", precompiled(charsmap("a" * 60)), {"type": "ByteLevel"}
        )
    },
    "many Metaspaces": {"pre_tokenizer": sequence("pretokenizers", *[{"type": "Metaspace"}] * 3)},
    "words of what is replaced": {
        **BERT,
        "normalizer": sequence("normalizers", *[replace("    ")] * 3),
    },
    "dropout": {"model": {**BPE, "dropout": 0.1}},
    "no map": {"normalizer": {"type": "Precompiled"}},
    "a map that is not base64": {"normalizer": {**precompiled(b""), "precompiled_charsmap": "!"}},
    "a map without a size": {"normalizer": precompiled(b"\0")},
    "a map that ends within its trie": {"normalizer": precompiled(charsmap("b")[:1000])},
    "long words": {"model": {**BERT["model"], "max_input_chars_per_word": 10**9}},
    "long prefix": {"model": {**BERT["model"], "continuing_subword_prefix": "a" * 10**5}},
    "long pieces": {"model": {"type": "Unigram", "vocab": [["a" * 4000, -1.0]]}},
    "many ids": {
        "post_processor": {
            **BERT["post_processor"],
            "special_tokens": {"[CLS]": {"ids": [1] * 10**5}},
        }
    },
    "many processors": {
        "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"}] * 1000}
    },
    "another model": {"model": {"type": "New"}},
}


@pytest.mark.parametrize("name", CHEAP)
def test_what_well_known_models_have_is_cheap(name: str) -> None:
    assert is_cheap({"model": BPE, **CHEAP[name]})


@pytest.mark.parametrize("name", COSTLY)
def test_what_may_be_costly_is_not(name: str) -> None:
    assert not is_cheap({"model": BPE, **COSTLY[name]})


def test_the_embedded_model_s_is_cheap() -> None:
    assert is_cheap(json.loads(read_tokenizer(MODEL_DIR)))


def test_the_maps_above_are_what_the_library_reads() -> None:
    assert normalizers.Precompiled(charsmap("bcd")).normalize_str("1 a 2") == "1 bcd 2"
