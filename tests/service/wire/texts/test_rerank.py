"""Requests to rank and to score texts, and the order in which ranked documents come back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.errors import InvalidRequestError
from service.wire.texts.embeddings import MAX_INPUTS
from service.wire.texts.rerank import PAIRS, decode_rerank, decode_score, ranked


def rerank(**fields: Any) -> Any:
    body = {"query": "q", "documents": ["a", {"text": "b"}, "c"], **fields}
    return decode_rerank(json.dumps(body).encode())


def test_documents_come_best_first_and_equal_ones_in_their_order() -> None:
    results = ranked(rerank(), [0.1, 0.9, 0.1])
    assert [(r.index, r.relevance_score) for r in results] == [(1, 0.9), (0, 0.1), (2, 0.1)]
    assert [r.document.text for r in results if r.document] == ["b", "a", "c"]


@pytest.mark.parametrize(("top_n", "shown"), [(1, 1), (2, 2), (99, 3), (0, 3), (None, 3)])
def test_only_the_best_are_shown(top_n: int | None, shown: int) -> None:
    assert len(ranked(rerank(top_n=top_n), [0.1, 0.9, 0.1])) == shown


def test_documents_need_not_be_sent_back() -> None:
    assert all(r.document is None for r in ranked(rerank(return_documents=False), [1.0, 2.0, 3.0]))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"documents": []}, "documents"),
        ({"documents": ["a"] * (MAX_INPUTS + 1)}, "documents"),
        ({"documents": [{"title": "x"}]}, "documents[0].text"),
        ({"top_n": -1}, "top_n"),
        ({"query": ["a"]}, "query"),
    ],
)
def test_an_unsound_rerank_names_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        rerank(**fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("one", "other", "is_sound"),
    [
        ("a", "b", True),
        ("a", ["b", "c"], True),
        (["a", "b"], ["c", "d"], True),
        (["a", "b"], "c", False),
        (["a", "b"], ["c", "d", "e"], False),
    ],
)
def test_one_text_is_scored_against_many_or_each_against_its_own(
    one: Any, other: Any, is_sound: bool
) -> None:
    body = json.dumps({"text_1": one, "text_2": other}).encode()
    if is_sound:
        assert decode_score(body)
    else:
        with pytest.raises(InvalidRequestError, match="text_1"):
            decode_score(body)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_texts_to_score_may_have_any_of_vllms_names(first: str, second: str) -> None:
    request = decode_score(json.dumps({first: "a", second: ["b", "c"]}).encode())
    assert (request.firsts, request.seconds) == (["a"], ["b", "c"])
    with pytest.raises(InvalidRequestError, match=f"'{first}' holds 2 texts") as refused:
        decode_score(json.dumps({first: ["a", "b"], second: "c"}).encode())
    assert refused.value.param == first


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ([], "text_1", "none of them"),
        (["text_2"], "text_2", "has 'text_2'"),
        (["queries", "data_2"], "queries", "has 'queries' and 'data_2'"),
        (["text_1", "text_2", "items"], "text_1", "'text_1' and 'text_2' and 'items'"),
        (["queries", "documents", "items"], "queries", "'documents' and 'items'"),
    ],
)
def test_texts_outside_one_pair_of_fields_are_refused_with_the_pairs(
    fields: list[str], param: str, said: str
) -> None:
    body = dict.fromkeys(fields, "a")
    with pytest.raises(InvalidRequestError, match=said) as refused:
        decode_score(json.dumps(body).encode())
    assert refused.value.param == param
    for first, second in PAIRS:
        assert f"'{first}' and '{second}'" in str(refused.value)


def test_null_is_no_text() -> None:
    body = {"text_1": None, "text_2": None, "queries": "a", "items": ["b"]}
    assert decode_score(json.dumps(body).encode()).seconds == ["b"]
