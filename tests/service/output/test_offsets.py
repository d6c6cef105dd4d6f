"""Where tokens begin in a text, also those that are part of a character or hidden."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.checkpoint.vocabulary import Vocabulary
from service.output.detokenizer import new_detokenizer
from service.output.offsets import EchoOffsets, Offsets, OutputOffsets
from tests.service.tokenizers_at_hand import NAMES, tokenizer, vocabulary

A, B, END, FIRST, SECOND, REST = range(6)
PIECES = (b"a", b"b", b"<end>", b"\xf0\x9f", b"\x99", b"\x82b")
SMALL = Vocabulary(
    PIECES, tuple(piece.decode(errors="replace") for piece in PIECES), None, frozenset([END]), str
)


def taken(offsets: Offsets, ids: list[int]) -> list[int]:
    return [offsets.take(token) for token in ids]


def of_output(
    used: Vocabulary, *, skip: bool = True, continues: bool = True, start: int = 0
) -> OutputOffsets:
    return OutputOffsets(used, skip_special_tokens=skip, continues_text=continues, start=start)


def test_parts_of_a_character_begin_where_it_does() -> None:
    ids = [A, FIRST, SECOND, REST, A]  # the rest has one more character
    assert taken(of_output(SMALL), ids) == [0, 1, 1, 1, 3]


def test_a_token_after_an_incomplete_character_begins_after_it() -> None:
    assert taken(of_output(SMALL), [FIRST, A, B]) == [0, 1, 2]


def test_hidden_tokens_take_no_room() -> None:
    ids = [A, END, B]
    assert taken(of_output(SMALL, start=5), ids) == [5, 6, 6]
    assert taken(of_output(SMALL, skip=False), ids) == [0, 1, 6]
    assert taken(of_output(SMALL), [A, 99, B]) == [0, 1, 1]  # the vocabulary ends before it


def test_special_tokens_of_a_prompt_take_room_if_the_client_wrote_them() -> None:
    assert taken(EchoOffsets(SMALL, "a<end>b"), [END, A, END, B]) == [0, 0, 1, 6]
    assert taken(EchoOffsets(SMALL, "ab"), [END, A, B, END]) == [0, 0, 1, 2]
    assert taken(EchoOffsets(SMALL, "\U0001f642bb"), [FIRST, SECOND, REST, B]) == [0, 0, 0, 2]


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_every_whole_token_is_found_at_its_offset(name: str, data: st.DataObject) -> None:
    used = vocabulary(name)
    ids = data.draw(st.lists(st.integers(0, len(used.token_bytes) - 1), max_size=30))
    skip = data.draw(st.booleans())
    detokenizer = new_detokenizer(used, skip_special_tokens=skip, continues_text=True)
    text = "".join([*map(detokenizer.push, ids), detokenizer.flush()])
    offsets = taken(of_output(used, skip=skip), ids)
    assert offsets == sorted(offsets)
    for token, offset in zip(ids, offsets, strict=True):
        own = used.token_text[token]
        is_part = own == "\ufffd" or token in (used.byte_fallback or ())
        if not is_part and not (skip and token in used.special_ids):
            assert text[offset:].startswith(own)


@pytest.mark.parametrize("name", NAMES)
@given(text=st.text(alphabet="aé你🚀 \n", max_size=12))
def test_the_offsets_of_an_echoed_prompt_are_in_its_text(name: str, text: str) -> None:
    ids = tokenizer(name).encode(text).ids
    echo = tokenizer(name).decode(ids, skip_special_tokens=True)
    offsets = taken(EchoOffsets(vocabulary(name), echo), ids)
    assert offsets == sorted(offsets)
    assert all(offset <= len(echo) for offset in offsets)
