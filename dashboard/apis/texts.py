"""Embeddings, reranking and scoring: texts in, numbers out, no stream."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from dashboard.answer import Answer, Usage
from dashboard.apis.ask import Ask


def embeddings_body(ask: Ask) -> dict[str, Any]:
    return {"model": ask.model, "input": lines(ask.text)}


def rerank_body(ask: Ask) -> dict[str, Any]:
    return {"model": ask.model, "query": ask.text, "documents": list(ask.documents)}


def score_body(ask: Ask) -> dict[str, Any]:
    return {"model": ask.model, "text_1": ask.text, "text_2": list(ask.documents)}


def lines(text: str) -> list[str]:
    """Each line is a separate text."""
    return [line.strip() for line in text.splitlines() if line.strip()] or [text]


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0


class _Vector(msgspec.Struct):
    embedding: list[float]


class _Vectors(msgspec.Struct):
    data: list[_Vector]
    usage: _Usage = msgspec.field(default_factory=_Usage)


class _Ranked(msgspec.Struct):
    index: int
    relevance_score: float


class _Ranking(msgspec.Struct):
    results: list[_Ranked]
    usage: _Usage = msgspec.field(default_factory=_Usage)


class _Score(msgspec.Struct):
    index: int
    score: float


class _Scores(msgspec.Struct):
    data: list[_Score]
    usage: _Usage = msgspec.field(default_factory=_Usage)


def read_embeddings(answer: Answer, body: str) -> None:
    """Raises msgspec.DecodeError. The result: for each text its vector's dimensions and length,
    and its cosine to each of them."""
    told = msgspec.json.decode(body, type=_Vectors)
    vectors = [one.embedding for one in told.data]
    rows = [
        {
            "text": number,
            "dimensions": len(vector),
            "length": round(math.hypot(*vector), 4),
            **{f"cosine to {n}": round(_cosine(vector, v), 4) for n, v in enumerate(vectors, 1)},
        }
        for number, vector in enumerate(vectors, 1)
    ]
    _finish(answer, rows, told.usage)


def read_rerank(answer: Answer, body: str) -> None:
    """Raises msgspec.DecodeError. The result: documents by their place in the request (from 1), the
    best first."""
    told = msgspec.json.decode(body, type=_Ranking)
    rows = [{"document": one.index + 1, "score": one.relevance_score} for one in told.results]
    _finish(answer, rows, told.usage)


def read_score(answer: Answer, body: str) -> None:
    """Raises msgspec.DecodeError."""
    told = msgspec.json.decode(body, type=_Scores)
    rows = [{"document": one.index + 1, "score": one.score} for one in told.data]
    _finish(answer, rows, told.usage)


def _finish(answer: Answer, rows: list[dict[str, Any]], usage: _Usage) -> None:
    answer.result = rows
    answer.usage = Usage(usage.prompt_tokens, 0)
    answer.chunks += 1
    answer.finish_reason = "complete"


def _cosine(a: list[float], b: list[float]) -> float:
    lengths = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=False)) / lengths if lengths else 0.0
