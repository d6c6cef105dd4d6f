"""Pairs of texts: read together by a cross-encoder, each by itself by any other model."""

from __future__ import annotations

from typing import Any

import pytest

from service.errors import ContextTooLongError, InvalidRequestError, WrongTaskError
from service.preparation.jobs import Noted
from service.preparation.scores import MAX_JOINED_CHARS
from tests.service.preparation.prepared import engine, prepared, tokenizer

READS_PAIRS = engine(embedding_size=0, num_scores=1)


def texts(made: Any) -> list[str]:
    return [tokenizer().decode(list(one.token_ids)) for one in made.inputs]


def test_where_embeddings_are_compared_each_text_is_an_input() -> None:
    made = prepared("rerank", {"query": "q", "documents": ["a", {"text": "b"}]})
    assert (made.num_firsts, texts(made)) == (1, ["q", "a", "b"])
    pairs = prepared("score", {"text_1": ["p", "q"], "text_2": ["a", "b"]})
    assert (pairs.num_firsts, texts(pairs)) == (2, ["p", "q", "a", "b"])


def test_a_cross_encoder_gets_each_pair_as_one_input() -> None:
    made = prepared("rerank", {"query": "q", "documents": ["a", "b"]}, loaded=READS_PAIRS)
    assert (made.num_firsts, texts(made)) == (0, ["qa", "qb"])
    pairs = {"text_1": ["p", "q"], "text_2": ["a", "b"]}
    assert texts(prepared("score", pairs, loaded=READS_PAIRS)) == ["pa", "qb"]


def test_only_the_first_version_of_rerank_tells_the_documents_back() -> None:
    body = {"query": "q", "documents": ["a"]}
    told = {step: prepared(step, body).request.return_documents for step in ("rerank", "rerank_v2")}
    assert told == {"rerank": True, "rerank_v2": False}
    for step in told:
        for wanted in (True, False):
            made = prepared(step, {**body, "return_documents": wanted})
            assert made.request.return_documents is wanted


def test_a_hint_that_does_nothing_is_noted() -> None:
    noted = Noted()
    body = {"query": "q", "documents": ["a"], "max_tokens_per_doc": 5}
    assert prepared("rerank_v2", body, noted=noted).noted is noted
    assert noted.ignored == ["max_tokens_per_doc"]


@pytest.mark.parametrize(
    ("fields", "use", "said"),
    [
        ({"embedding_size": 0}, None, "does not support scoring"),
        ({"embedding_size": 8}, False, "use_activation"),
    ],
)
def test_what_a_model_cannot_score_is_refused(
    fields: dict[str, int], use: bool | None, said: str
) -> None:
    body = {"text_1": "a", "text_2": "b", "use_activation": use}
    with pytest.raises(WrongTaskError, match=said):
        prepared("score", body, loaded=engine(**fields))


def test_a_long_text_is_not_joined_with_thousands_of_others() -> None:
    query = "q" * (MAX_JOINED_CHARS // 64 + 1)
    with pytest.raises(InvalidRequestError, match="combined with 64 texts") as refused:
        prepared("rerank", {"query": query, "documents": ["a"] * 64}, loaded=READS_PAIRS)
    assert refused.value.param == "query"


def test_the_text_that_is_too_long_is_named() -> None:
    with pytest.raises(ContextTooLongError) as refused:
        prepared("rerank", {"query": "q", "documents": ["a", "word " * 9000]})
    assert refused.value.param == "documents[1]"
