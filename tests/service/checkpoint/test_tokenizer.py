"""Encoding, and how much of a long text is encoded."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer as FastTokenizer

from service.checkpoint.tokenizer import Tokenizer, TooManyTokensError, UntokenizableError
from tests.service.exponential_tokenizer import ENDLESS_TEXT, write_exponential_tokenizer
from tests.service.gguf.vocabularies import byte_level


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> Tokenizer:
    return Tokenizer(tiny_model)


@pytest.mark.parametrize("special", [False, True])
def test_ids_and_text_are_those_of_the_tokenizers_own_calls(
    tokenizer: Tokenizer, tiny_model: Path, special: bool
) -> None:
    reference = FastTokenizer.from_file(str(tiny_model / "tokenizer.json"))
    for text in ("", "Hello there", "<|im_start|>user\nGrüße 🚀<|im_end|>"):
        ids = reference.encode(text, add_special_tokens=special).ids
        assert tokenizer.encode(text, add_special_tokens=special) == ids
        assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=False)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the texts that will be encoded."""
    lengths: list[int] = []
    encode = Tokenizer.encode

    def counting(self: Tokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
        lengths.append(len(text))
        return encode(self, text, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(Tokenizer, "encode", counting)
    return lengths


def test_a_text_that_is_surely_too_long_is_not_encoded_whole(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = counted(monkeypatch)
    with pytest.raises(TooManyTokensError):
        tokenizer.encode_within("a b " * 1_000_000, 100, add_special_tokens=True)
    assert sum(lengths) <= 2000
    with pytest.raises(UnicodeEncodeError):
        tokenizer.encode_within("\ud800" * 100_000, 100, add_special_tokens=True)


@pytest.mark.parametrize("text", ["", "a b", "a b " * 900, " " * 50_000, "Grüße 🚀 " * 400])
def test_a_text_that_may_fit_is_encoded_whole(tokenizer: Tokenizer, text: str) -> None:
    whole = tokenizer.encode(text, add_special_tokens=True)
    most = max(1, len(whole))
    assert tokenizer.encode_within(text, most, add_special_tokens=True) == whole


@pytest.mark.parametrize("from_end", [False, True])
@pytest.mark.parametrize("text", ["a b", "word 12 \n" * 9000, " " * 70_000 + "x", "ab" * 40_000])
def test_as_much_is_encoded_as_is_kept(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, text: str, from_end: bool
) -> None:
    whole = tokenizer.encode(text, add_special_tokens=False)
    lengths = counted(monkeypatch)
    part = tokenizer.encode_part(text, 100, from_end=from_end, add_special_tokens=False)
    kept = whole[-100:] if from_end else whole[:100]
    assert (part[-100:] if from_end else part[:100]) == kept
    if len(whole) > 40_000:
        assert sum(lengths) < 10_000


def splitting(tmp_path: Path, *patterns: str) -> tuple[Tokenizer, FastTokenizer]:
    """Return our tokenizer of a file whose text is split by patterns, and the library's own."""
    original = byte_level(*patterns)
    (tmp_path / "tokenizer.json").write_text(original.to_str())
    return Tokenizer(tmp_path), original


@pytest.mark.timeout(30)  # the original takes minutes
def test_spaces_at_the_end_of_a_text_take_linear_time(tmp_path: Path) -> None:
    ours, original = splitting(tmp_path, r"[\r\n]", r"\s?\p{L}+", r"\s+$", r"\p{N}")
    draw = random.Random(0)
    for _ in range(1000):
        text = "".join(draw.choices(" \t\r\n\u00a0\u3000a1", k=draw.randint(1, 12)))
        expected = original.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_special_tokens=False) == expected
    assert ours.encode(f"1{' ' * 200_000}1", add_special_tokens=False)


def test_spaces_at_the_ends_of_lines_are_split_as_the_file_says(tmp_path: Path) -> None:
    ours, original = splitting(tmp_path, r"\s+$", r"\p{N}")
    for text in ("a \n b", "a  \n\n b  ", " \n "):
        expected = original.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_special_tokens=False) == expected


def test_a_regular_expression_that_gives_up_is_an_error_of_its_own(tmp_path: Path) -> None:
    tokenizer = Tokenizer(write_exponential_tokenizer(tmp_path))
    assert tokenizer.encode("a!", add_special_tokens=False)
    with pytest.raises(UntokenizableError, match="retry-limit"):
        tokenizer.encode(ENDLESS_TEXT, add_special_tokens=False)
    for text in (ENDLESS_TEXT, (ENDLESS_TEXT, "b")):
        with pytest.raises(UntokenizableError):
            tokenizer.encode_text(text, add_special_tokens=False)
