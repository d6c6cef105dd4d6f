"""Texts are counted though no model could take them; only what is far too long is refused."""

from __future__ import annotations

import pytest

from service.conversation import Conversation
from service.errors import InvalidRequestError
from service.preparation.counting import counted, encode_counted
from tests.service.preparation.bodies import USER
from tests.service.preparation.prepared import engine, tokenizer, work_of

WORK = work_of("tokenize", loaded=engine(max_model_len=8))


def test_a_text_longer_than_the_context_is_counted() -> None:
    text = "word " * 100
    ids = encode_counted(text, WORK, "prompt", add_special_tokens=False)
    assert len(ids) > 8
    assert tokenizer().decode(ids) == text


def test_a_conversation_is_counted_as_its_template_writes_it() -> None:
    text = tokenizer().decode(counted(Conversation(messages=USER), WORK))
    assert text.count("Hi") == 1
    assert len(text) > len("Hi")


def test_what_is_no_text_or_far_too_long_is_refused_by_its_field() -> None:
    for text, said in (("\ud800", "not Unicode"), ("a" * ((1 << 20) + 1), "characters")):
        with pytest.raises(InvalidRequestError, match=said) as refused:
            encode_counted(text, WORK, "messages", add_special_tokens=False)
        assert refused.value.param == "messages"


def test_a_larger_context_counts_more() -> None:
    work = work_of("tokenize", loaded=engine(max_model_len=1 << 18))
    assert encode_counted("a" * ((1 << 20) + 1), work, "prompt", add_special_tokens=False)
