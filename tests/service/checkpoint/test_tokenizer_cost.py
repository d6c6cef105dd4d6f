"""Which tokenizers the event loop may use."""

from __future__ import annotations

import json
from typing import Any

import pytest

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


@pytest.mark.parametrize(
    ("fields", "cheap"),
    [
        ({"normalizer": None, "pre_tokenizer": None}, True),
        ({"pre_tokenizer": sequence("pretokenizers", split(LLAMA3), BYTE_LEVEL)}, True),
        ({"pre_tokenizer": sequence("pretokenizers", split("(a|aa)+$"), BYTE_LEVEL)}, False),
        ({"pre_tokenizer": split("(a|aa)+$")}, False),
        ({"normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "▁"})}, True),
        ({"normalizer": {"type": "Prepend", "prepend": "▁" * 10**6}}, False),
        ({"normalizer": replace("▁")}, True),
        ({"normalizer": replace("▁" * 10**6)}, False),
        ({"normalizer": sequence("normalizers", *[replace("  ")] * 24)}, False),
        ({"normalizer": {"type": "Replace", "pattern": {"Regex": "(a|aa)+$"}}}, False),
    ],
    ids=[
        *("nothing", "known", "unknown", "alone", "prepended", "much prepended", "replaced"),
        *("much replaced", "again and again", "by a regex"),
    ],
)
def test_only_known_patterns_and_short_replacements_are_cheap(
    fields: dict[str, Any], cheap: bool
) -> None:
    assert is_cheap(fields) is cheap


def test_the_embedded_model_s_is_cheap() -> None:
    assert is_cheap(json.loads(read_tokenizer(MODEL_DIR)))
