"""Pairs of texts: read together by a cross-encoder, each by itself by any other model."""

from __future__ import annotations

from typing import Any

import pytest

from service.errors import ContextTooLongError, InvalidRequestError, WrongTaskError
from service.preparation.jobs import Noted
from service.preparation.scores import COHERE_TOKENS_PER_DOC, MAX_JOINED_CHARS
from service.wire.texts.rerank import PAIRS
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


def test_an_error_names_the_field_that_the_client_sent() -> None:
    long = "word " * 9000
    for first, second in PAIRS:
        for body, named in (
            ({first: "a", second: ["b", long]}, f"{second}[1]"),
            ({first: "a", second: long}, second),
            ({first: long, second: "a"}, first),
        ):
            with pytest.raises(ContextTooLongError) as refused:
                prepared("score", body)
            assert refused.value.param == named


def test_only_the_first_version_of_rerank_tells_the_documents_back() -> None:
    body = {"query": "q", "documents": ["a"]}
    told = {step: prepared(step, body).request.return_documents for step in ("rerank", "rerank_v2")}
    assert told == {"rerank": True, "rerank_v2": False}
    for step in told:
        for wanted in (True, False):
            made = prepared(step, {**body, "return_documents": wanted})
            assert made.request.return_documents is wanted


LONG = "a b c d e f g h"
SHORT_CONTEXT = {"max_model_len": 6}


def sizes(made: Any) -> list[int]:
    return [len(one.token_ids) for one in made.inputs]


@pytest.mark.parametrize("step", ["rerank", "rerank_v2"])
def test_each_document_is_cut_to_max_tokens_per_doc(step: str) -> None:
    query = len(tokenizer().encode("q r", add_special_tokens=False))
    noted = Noted()
    body = {"query": "q r", "documents": ["a", LONG], "max_tokens_per_doc": 3}
    apart = prepared(step, body, noted=noted)
    assert sizes(apart) == [query, 1, 3]
    assert texts(apart)[2] == tokenizer().decode(
        tokenizer().encode(LONG, add_special_tokens=False)[:3]
    )
    assert sizes(prepared(step, body, loaded=READS_PAIRS, noted=noted)) == [query + 1, query + 3]
    assert noted.ignored == []


def test_the_first_text_is_cut_to_max_tokens_per_query() -> None:
    asked = {"max_tokens_per_query": 2}
    for step, body in (
        ("rerank", {"query": LONG, "documents": ["a"]}),
        ("score", {"text_1": LONG, "text_2": "a"}),
    ):
        assert sizes(prepared(step, {**body, **asked})) == [2, 1]
        assert sizes(prepared(step, {**body, **asked}, loaded=READS_PAIRS)) == [3]


def test_vllms_zero_is_no_limit() -> None:
    fields = {"max_tokens_per_doc": 0, "max_tokens_per_query": 0}
    body = {"query": LONG, "documents": [LONG]}
    assert sizes(prepared("rerank", {**body, **fields})) == sizes(prepared("rerank", body))


@pytest.mark.parametrize("across", [False, True])
def test_cohere_cuts_documents_to_its_default_and_to_what_fits(across: bool) -> None:
    kind = {"embedding_size": 0, "num_scores": 1} if across else {}
    noted = Noted()
    body = {"query": "q", "documents": ["a", "word " * 9000]}
    made = prepared("rerank_v2", body, loaded=engine(max_model_len=8192, **kind), noted=noted)
    assert sizes(made)[-1] == COHERE_TOKENS_PER_DOC + across
    assert noted.ignored == ["documents[1]"]
    short = prepared("rerank_v2", body, loaded=engine(**SHORT_CONTEXT, **kind))
    assert sizes(short)[-1] == 6
    for asked, reported in ((4096, ["documents[1]"]), (3, [])):
        noted = Noted()
        limited = {**body, "max_tokens_per_doc": asked}
        prepared("rerank_v2", limited, loaded=engine(**SHORT_CONTEXT, **kind), noted=noted)
        assert noted.ignored == reported


@pytest.mark.parametrize("across", [False, True])
def test_a_query_without_room_for_a_document_is_named_without_advice_to_truncate(
    across: bool,
) -> None:
    kind = {"embedding_size": 0, "num_scores": 1} if across else {}
    for query, document in ((LONG, "a"), ("word " * 9000, "a"), ("word " * 9000, "")):
        with pytest.raises(ContextTooLongError) as refused:
            prepared(
                "rerank_v2",
                {"query": query, "documents": [document, "b"]},
                loaded=engine(**SHORT_CONTEXT, **kind),
            )
        assert refused.value.param == "query"
        assert str(refused.value).endswith("Shorten it.")


def test_other_routes_refuse_a_pair_that_is_too_long_even_with_shorter_documents() -> None:
    loaded = engine(**SHORT_CONTEXT, embedding_size=0, num_scores=1)
    body = {"query": "q", "documents": ["a", LONG]}
    for asked in ({}, {"max_tokens_per_doc": 6}, {"max_tokens_per_doc": 4096}):
        with pytest.raises(ContextTooLongError, match="'truncate_prompt_tokens' to -1") as refused:
            prepared("rerank", {**body, **asked}, loaded=loaded)
        assert refused.value.param == "documents[1]"
    assert sizes(prepared("rerank", {**body, "max_tokens_per_doc": 5}, loaded=loaded)) == [2, 6]
    both = {"max_tokens_per_doc": 4096, "truncate_prompt_tokens": -1}
    assert sizes(prepared("rerank", {**body, **both}, loaded=loaded)) == [2, 6]


def test_a_request_that_says_how_to_truncate_is_taken_at_its_word() -> None:
    noted = Noted()
    body = {"query": "q", "documents": [LONG], "truncate_prompt_tokens": 4}
    assert sizes(prepared("rerank_v2", body, loaded=READS_PAIRS, noted=noted)) == [4]
    assert noted.ignored == []


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


def test_a_long_query_that_is_cut_is_joined_with_thousands_of_others() -> None:
    body = {"query": "word " * 9000, "documents": ["a"] * 1000, "max_tokens_per_query": 4}
    made = prepared("rerank", body, loaded=engine(embedding_size=0, num_scores=1))
    assert len(sizes(made)) == 1000
    assert max(sizes(made)) < 12


def test_the_text_that_is_too_long_is_named() -> None:
    with pytest.raises(ContextTooLongError) as refused:
        prepared("rerank", {"query": "q", "documents": ["a", "word " * 9000]})
    assert refused.value.param == "documents[1]"
