"""Texts become token ids, cut where a request allows it, refused where it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.checkpoint.tokenizer import EncodedText, Tokenizer
from service.errors import ContextTooLongError, InvalidRequestError
from service.pooling.inputs import (
    Input,
    Text,
    Truncation,
    check_lengths,
    encode_texts,
    kept_places,
    truncate_ids,
    truncation,
)
from tests.service.tiny_encoder import write_tiny_tokenizer

# [CLS] a a a [SEP] b b [SEP]
PAIR = [None, 0, 0, 0, None, 1, 1, None]
SINGLE = [None, 0, 0, 0, 0, None]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("tokenizer")
    write_tiny_tokenizer(directory)
    return Tokenizer(directory)


@pytest.mark.parametrize(
    ("truncated", "kept"),
    [
        (Truncation(6), [0, 1, 2, 3, 4, 5]),
        (Truncation(5), [0, 1, 2, 3, 5]),
        (Truncation(4, "end"), [0, 3, 4, 5]),
        (Truncation(2), [0, 5]),
        (Truncation(1), [0]),
    ],
)
def test_a_texts_end_is_cut_and_its_special_tokens_stay(
    truncated: Truncation, kept: list[int]
) -> None:
    assert kept_places(SINGLE, truncated, 0) == kept


def test_the_second_text_of_a_pair_is_cut() -> None:
    assert kept_places(PAIR, Truncation(7), 1) == [0, 1, 2, 3, 4, 5, 7]
    assert kept_places(PAIR, Truncation(7, "end"), 1) == [0, 1, 2, 3, 4, 6, 7]


def test_each_text_of_a_pair_may_have_its_own_limit() -> None:
    assert kept_places(PAIR, Truncation(None, of_texts=(2, None)), 1) == [0, 1, 2, 4, 5, 6, 7]
    assert kept_places(PAIR, Truncation(None, of_texts=(None, 1)), 1) == [0, 1, 2, 3, 4, 5, 7]
    assert kept_places(PAIR, Truncation(6, of_texts=(2, 9)), 1) == [0, 1, 2, 4, 5, 7]
    assert kept_places(SINGLE, Truncation(None, of_texts=(9,)), 0) == [0, 1, 2, 3, 4, 5]


@given(
    st.lists(st.sampled_from([None, 0, 1]), min_size=2, max_size=30),
    st.data(),
    st.sampled_from(["start", "end"]),
)
def test_truncation_keeps_exactly_its_limit(
    texts: list[int | None], data: st.DataObject, keep: str
) -> None:
    limit = data.draw(st.integers(1, len(texts) - 1))
    truncated = Truncation(limit, keep)  # type: ignore[arg-type]  # one of the two
    kept = kept_places(texts, truncated, int(1 in texts))
    assert kept == sorted(set(kept))
    assert len(kept) == limit


def test_pairs_are_read_together_with_the_start_of_the_second_text(
    tokenizer: Tokenizer,
) -> None:
    texts: list[Text] = [("fox dog", "lazy"), "fox"]
    [pair, text] = encode_texts(texts, tokenizer, names=["a", "b"], longest=512)
    first = tokenizer.encode("fox dog", add_special_tokens=True)
    assert pair.token_ids[: len(first)] == first
    assert pair.second_text == len(first)
    assert text == Input(tokenizer.encode("fox", add_special_tokens=True))


def test_long_and_many_texts_are_encoded_like_short_ones(tokenizer: Tokenizer) -> None:
    texts = [f"fox {number} " * (number % 7) for number in range(300)]
    names = ["input"] * len(texts)
    inputs = encode_texts(texts, tokenizer, names=names, longest=512)
    assert [one.token_ids for one in inputs] == [
        tokenizer.encode(text, add_special_tokens=True) for text in texts
    ]


def test_token_ids_are_cut_at_either_end() -> None:
    assert truncate_ids([1, 2, 3], None) == [1, 2, 3]
    assert truncate_ids([1, 2, 3], Truncation(2)) == [1, 2]
    assert truncate_ids([1, 2, 3], Truncation(2, "end")) == [2, 3]


def test_a_truncation_beyond_the_model_is_refused() -> None:
    assert truncation(None, None, longest=9) is None
    assert truncation(-1, None, longest=9) == Truncation(9)
    assert truncation(9, "left", longest=9) == Truncation(9, "end")
    with pytest.raises(InvalidRequestError, match="at most 9"):
        truncation(10, None, longest=9)


def test_the_input_that_is_too_long_or_empty_is_named() -> None:
    inputs = [Input([1]), Input([1] * 9)]
    check_lengths(inputs, ["input[0]", "input[1]"], longest=9)
    with pytest.raises(ContextTooLongError, match=r"at most 8 .* 'input\[1\]' has 9") as caught:
        check_lengths(inputs, ["input[0]", "input[1]"], longest=8)
    assert caught.value.param == "input[1]"
    with pytest.raises(InvalidRequestError, match="'input' is empty"):
        check_lengths([Input([])], ["input"], longest=8)


def test_a_text_that_is_too_long_is_encoded_only_as_far_as_needed(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    encode = Tokenizer.encode

    def counting(self: Tokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
        encoded.append(len(text))
        return encode(self, text, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(Tokenizer, "encode", counting)
    text = "fox " * 250_000
    for one in (text, (text, "dog"), ("dog", text)):
        with pytest.raises(ContextTooLongError, match=r"'input\[0\]' has more") as refused:
            encode_texts([one], tokenizer, names=["input[0]"], longest=512)
        assert refused.value.param == "input[0]"
    assert sum(encoded) < 20_000


def test_a_text_is_encoded_only_as_far_as_its_own_limit_needs(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    encode_text = Tokenizer.encode_text

    def counting(self: Tokenizer, text: Text, *, add_special_tokens: bool) -> EncodedText:
        encoded.append(sum(map(len, text)) if isinstance(text, tuple) else len(text))
        return encode_text(self, text, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(Tokenizer, "encode_text", counting)
    long: list[Text] = [("dog", "fox " * 250_000)]
    for limit, of_doc in ((None, 5), (512, 2**31), (512, 5)):
        cut = Truncation(limit, of_texts=(None, of_doc))
        [one] = encode_texts(long, tokenizer, names=["a"], longest=512, truncated=cut)
        assert len(one.token_ids) == min(512, of_doc + 4)
        assert one.cut_to == min(508, of_doc)
    assert sum(encoded) < 20_000
    cut = Truncation(None, of_texts=(None, 2**31))
    with pytest.raises(ContextTooLongError):
        encode_texts(long, tokenizer, names=["a"], longest=512, truncated=cut)


def test_truncation_of_a_long_text_keeps_what_truncation_of_all_tokens_would(
    tokenizer: Tokenizer,
) -> None:
    text = "".join(f"fox {number} dog " for number in range(20_000))
    for keep in ("start", "end"):
        cut = Truncation(64, keep)  # type: ignore[arg-type]  # one of the two
        [one] = encode_texts([text], tokenizer, names=["input"], longest=64, truncated=cut)
        whole = tokenizer.encode_text(text, add_special_tokens=True)
        kept = [whole.ids[place] for place in kept_places(whole.text_of_token, cut, 0)]
        assert one.token_ids == kept
