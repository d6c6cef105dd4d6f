"""Cohere's SDK reranks by both versions of its API."""

from __future__ import annotations

import sys

import cohere

URL, MODEL = sys.argv[1:]

DOCUMENTS = ["a b c", "d e f", "a b d"]
for client in (cohere.Client, cohere.ClientV2):
    reply = client(api_key="unused", base_url=URL).rerank(
        model=MODEL, query="a b c", documents=DOCUMENTS, top_n=2
    )
    assert [type(result.index) for result in reply.results] == [int, int], reply
    scores = [result.relevance_score for result in reply.results]
    assert scores == sorted(scores, reverse=True), reply
