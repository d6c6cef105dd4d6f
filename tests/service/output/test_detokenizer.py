"""Text grows token by token and is in the end what the tokenizer itself would have said."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.output.detokenizer import new_detokenizer
from tests.service.tokenizers_at_hand import NAMES, tokenizer, vocabulary


def pieces(name: str, ids: list[int], *, skip: bool = True, continues: bool = False) -> list[str]:
    detokenizer = new_detokenizer(
        vocabulary(name), skip_special_tokens=skip, continues_text=continues
    )
    return [*(detokenizer.push(token) for token in ids), detokenizer.flush()]


def valid_byte_runs(name: str, ids: list[int], *, skip: bool) -> bool:
    """Whether every run of byte tokens is UTF-8 by itself."""
    byte_of = vocabulary(name).byte_fallback
    if not byte_of:
        return True
    run = b""
    for token in [*ids, None]:
        if token in byte_of:
            run += byte_of[token]
            continue
        if not (skip and token in vocabulary(name).special_ids):
            try:
                run.decode()
            except UnicodeDecodeError:
                return False
            run = b""
    return True


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_the_pieces_of_any_tokens_join_to_what_the_tokenizer_decodes(
    name: str, data: st.DataObject
) -> None:
    size = len(vocabulary(name).token_bytes)
    ids = data.draw(st.lists(st.integers(0, size - 1), max_size=30))
    skip = data.draw(st.booleans())
    expected = tokenizer(name).decode(ids, skip_special_tokens=skip)
    joined = "".join(pieces(name, ids, skip=skip))
    if valid_byte_runs(name, ids, skip=skip):
        assert joined == expected
    else:
        # A run that turns invalid late keeps the whole characters already given out.
        assert joined.count("\ufffd") >= 1
        assert joined.replace("\ufffd", "").startswith(expected.split("\ufffd")[0])


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_a_whole_text_is_what_the_token_makes_wherever_it_comes(
    name: str, data: st.DataObject
) -> None:
    size = len(vocabulary(name).token_bytes)
    skip, continues = data.draw(st.booleans()), data.draw(st.booleans())
    detokenizer = new_detokenizer(
        vocabulary(name), skip_special_tokens=skip, continues_text=continues
    )
    for token in data.draw(st.lists(st.integers(0, size - 1), max_size=30)):
        whole = detokenizer.whole_texts
        text = detokenizer.push(token)
        if whole is not None and whole[token] not in ("", "\ufffd"):
            assert text == whole[token]


@pytest.mark.parametrize("name", ["byte-level", "llama", "gemma"])
@given(text=st.text(alphabet="aé你🚀 \n👩‍👧", max_size=20))
def test_any_text_survives_its_own_tokens(name: str, text: str) -> None:
    fast = tokenizer(name)
    if name == "byte-level":
        ids = fast.encode(text).ids
    else:
        ids = [fast.token_to_id(f"<0x{byte:02X}>") for byte in text.encode()]
    expected = fast.decode(ids)
    assert "".join(pieces(name, ids)) == expected


@pytest.mark.parametrize("name", ["byte-level", "llama", "gemma"])
def test_a_rocket_in_byte_tokens_is_silence_three_times_and_then_a_rocket(name: str) -> None:
    if name == "byte-level":
        by_bytes = {value: key for key, value in enumerate(vocabulary(name).token_bytes)}
    else:
        assert vocabulary(name).byte_fallback is not None
        by_bytes = {value: key for key, value in vocabulary(name).byte_fallback.items()}
    ids = [by_bytes[bytes([byte])] for byte in "🚀".encode()]
    assert pieces(name, ids) == ["", "", "", "🚀", ""]


@pytest.mark.parametrize("name", ["byte-level", "llama"])
def test_a_character_cut_off_at_the_end_shows_as_the_tokenizer_shows_it(name: str) -> None:
    fast = tokenizer(name)
    if name == "byte-level":
        by_bytes = {value: key for key, value in enumerate(vocabulary(name).token_bytes)}
    else:
        assert vocabulary(name).byte_fallback is not None
        by_bytes = {value: key for key, value in vocabulary(name).byte_fallback.items()}
    ids = [by_bytes[bytes([byte])] for byte in "🚀".encode()[:3]]
    assert "".join(pieces(name, ids)) == fast.decode(ids)


def test_special_tokens_are_skipped_or_kept_as_asked() -> None:
    fast = tokenizer("byte-level")
    ids = [*fast.encode("Hello").ids, fast.token_to_id("<|im_end|>")]
    assert "".join(pieces("byte-level", ids)) == "Hello"
    assert "".join(pieces("byte-level", ids, skip=False)) == "Hello<|im_end|>"


def test_a_continued_text_keeps_the_space_before_its_first_word() -> None:
    fast = tokenizer("llama")
    ids = [fast.token_to_id("▁fox"), fast.token_to_id("s")]
    assert "".join(pieces("llama", ids)) == "foxs"
    assert "".join(pieces("llama", ids, continues=True)) == " foxs"


def test_ids_beyond_the_vocabulary_are_silent() -> None:
    for name in ("byte-level", "llama"):
        first = len(vocabulary(name).token_bytes)  # a model may have a few more than its tokenizer
        assert pieces(name, [first]) == pieces(name, [10**6]) == ["", ""]


def test_tokens_that_decode_to_nothing_cost_no_more_at_the_end_than_at_the_start() -> None:
    """A decoder that looks back over undecoded tokens would take quadratic time here."""
    detokenizer = new_detokenizer(
        vocabulary("byte-level"), skip_special_tokens=True, continues_text=False
    )
    special = next(iter(vocabulary("byte-level").special_ids))

    def seconds(count: int) -> float:
        start = time.process_time()
        for _ in range(count):
            assert detokenizer.push(special) == ""
        return time.process_time() - start

    first = seconds(50_000)
    for _ in range(6):
        last = seconds(50_000)
    assert last < 5 * first + 0.05
