"""Vectors, rankings and scores become tables."""

from __future__ import annotations

import json
from typing import Any

from dashboard.answer import Answer
from dashboard.apis import texts
from dashboard.apis.ask import Ask, Message


def test_each_line_is_a_text() -> None:
    ask = Ask("m", (Message("user", " one \n\ntwo"),), documents=("a", "b"))
    assert texts.embeddings_body(ask)["input"] == ["one", "two"]
    assert texts.rerank_body(ask)["documents"] == ["a", "b"]
    assert texts.score_body(ask)["text_2"] == ["a", "b"]


def read(reader: Any, told: dict[str, Any]) -> Answer:
    answer = Answer(sent=0.0)
    reader(answer, json.dumps({**told, "usage": {"prompt_tokens": 3}}))
    assert answer.finish_reason == "complete"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 3
    return answer


def test_vectors_are_compared() -> None:
    data = [{"embedding": [3.0, 4.0]}, {"embedding": [4.0, -3.0]}, {"embedding": [0.0, 0.0]}]
    rows = read(texts.read_embeddings, {"data": data}).result
    assert (rows[0]["dimensions"], rows[0]["length"]) == (2, 5.0)
    assert (rows[0]["cosine to 1"], rows[0]["cosine to 2"], rows[0]["cosine to 3"]) == (1, 0, 0)


def test_documents_are_counted_from_one() -> None:
    ranked = read(texts.read_rerank, {"results": [{"index": 1, "relevance_score": 0.9}]})
    assert ranked.result == [{"document": 2, "score": 0.9}]
    scored = read(texts.read_score, {"data": [{"index": 0, "score": 0.25}]})
    assert scored.result == [{"document": 1, "score": 0.25}]
