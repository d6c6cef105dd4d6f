"""The text of each token id, as the tokenizer itself decodes it."""

from __future__ import annotations

from typing import Any

import pytest

from service.checkpoint.vocabulary import (
    REPLACEMENT,
    UnsupportedTokenizerError,
    read_vocabulary,
)
from tests.service.tokenizers_at_hand import NAMES, tokenizer, vocabulary


@pytest.mark.parametrize("name", NAMES)
def test_a_single_token_is_what_the_tokenizer_decodes_it_to(name: str) -> None:
    known, oracle = vocabulary(name), tokenizer(name)
    for token_id in range(len(known.token_text)):
        told = known.strip_start(known.text_of(token_id))
        assert told == oracle.decode([token_id], skip_special_tokens=False), token_id


@pytest.mark.parametrize("name", NAMES)
def test_bytes_and_text_of_a_token_agree(name: str) -> None:
    known = vocabulary(name)
    for token_id, text in enumerate(known.token_text):
        shown = known.bytes_of(token_id).decode("utf-8", "replace")
        assert known.text_of(token_id) == shown
        if text != REPLACEMENT and token_id not in (known.byte_fallback or {}):
            assert text == shown


@pytest.mark.parametrize("name", ["byte-level", "llama", "gemma"])
def test_every_byte_can_be_written(name: str) -> None:
    known = vocabulary(name)
    assert {known.bytes_of(token_id) for token_id in range(len(known.token_bytes))} >= {
        bytes([byte]) for byte in range(256)
    }


def test_ids_beyond_the_vocabulary_are_empty_and_every_token_has_a_name() -> None:
    known = vocabulary("byte-level")
    beyond = len(known.token_bytes)
    assert (known.bytes_of(beyond), known.text_of(beyond)) == (b"", "")
    named = known.named_by_id()
    assert named.text_of(7) == "token_id:7"
    assert named.bytes_of(7) == known.bytes_of(7)


def test_specials_can_be_made_ordinary() -> None:
    known = vocabulary("llama")
    shown = frozenset(sorted(known.special_ids)[:1])
    assert known.without_specials(shown).special_ids == known.special_ids - shown
    assert known.without_specials(frozenset()).special_ids == known.special_ids


def test_word_pieces_begin_a_word_unless_they_bear_the_prefix() -> None:
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    tokens = ["[CLS]", "play", "##ing", None]
    known = read_vocabulary(tokens, frozenset({0}), decoder)
    assert known.token_text == ("[CLS]", " play", "ing", "")
    assert known.strip_start(" play") == "play"


@pytest.mark.parametrize(
    ("decoder", "said"),
    [
        (None, "none"),
        ({"type": "CTC"}, "CTC"),
        ({"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "CTC"}]}, "CTC"),
        ({"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""}, "regular expression"),
        ({"type": "Strip", "content": " ", "start": 0, "stop": 1}, "strips a text's end"),
    ],
)
def test_decoders_of_other_kinds_are_refused(decoder: dict[str, Any] | None, said: str) -> None:
    with pytest.raises(UnsupportedTokenizerError, match=said):
        read_vocabulary(["a"], frozenset(), decoder)


def _replace(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def _sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "decoders": [*steps]}


@pytest.mark.parametrize(
    ("start", "stripped"), [(0, "   a "), (2, " a "), (3, "a "), (10**12, "a ")]
)
def test_a_decoder_strips_no_more_than_is_there(start: int, stripped: str) -> None:
    decoder = {"type": "Strip", "content": " ", "start": start, "stop": 0}
    assert read_vocabulary(["a"], frozenset(), decoder).strip_start("   a ") == stripped


@pytest.mark.parametrize(
    ("tokens", "decoder", "said"),
    [
        pytest.param(
            ["a"], _sequence(*[_replace("a", "aa")] * 24), "at most 4096", id="doubled-24-times"
        ),
        pytest.param(["b" * 100], _replace("", "x" * 10**6), "at most 4096", id="between-all"),
        pytest.param(
            ["a"] * 5000,
            _replace("a", "b" * 4096),
            "more than 16777216 characters",
            id="all-together",
        ),
        pytest.param(["a"], _sequence(*[{"type": "Fuse"}] * 65), "65 steps", id="steps"),
    ],
)
def test_a_decoder_that_makes_gigabytes_is_refused(
    tokens: list[str | None], decoder: dict[str, Any], said: str
) -> None:
    with pytest.raises(UnsupportedTokenizerError, match=said):
        read_vocabulary(tokens, frozenset(), decoder)


def test_a_long_token_that_no_replacement_makes_longer_is_kept() -> None:
    long = "\u2581" * 10_000
    known = read_vocabulary([long], frozenset(), _replace("\u2581", " "))
    assert known.token_text == (" " * 10_000,)
