"""Vectors come back in the order of their texts; scores are what they say of the pairs."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Coroutine
from typing import Any

import pytest

from service.errors import ClientGoneError, DrainingError, EngineFailedError, WrongTaskError
from service.pooling.scores import floats_of
from service.preparation.embeddings import EMBEDDINGS
from service.preparation.scores import RERANK, SCORE
from service.serving.pooling import embed, score_pairs
from tests.service.preparation.prepared import engine
from tests.service.serving.by_hand import client, give_vectors, loaded, services
from tests.service.wire.chat.test_answer import Desk, fail


async def answered(work: Coroutine[Any, Any, Any], desk: Desk, *vectors: list[float]) -> Any:
    """What comes of it once the engine has made these vectors."""
    working = asyncio.ensure_future(work)
    while len(desk.sequences) < len(vectors) and not working.done():
        await asyncio.sleep(0)
    if not working.done():
        give_vectors(desk, *vectors)
    return await working


async def test_vectors_are_in_the_order_of_their_texts_and_tokens_are_counted() -> None:
    desk = loaded(answers=True)
    asking = client(services(desk))
    body = json.dumps({"input": [[1, 2], [3]], "dimensions": 4}).encode()
    wanted, pooled = await answered(embed(EMBEDDINGS, body, asking), desk, [1.0, 0.0], [0.0, 2.0])
    assert wanted.dimensions == 4
    assert [list(floats_of(vector)) for vector in pooled.vectors] == [[1.0, 0.0], [0.0, 2.0]]
    assert pooled.prompt_tokens == 3
    assert asking.exchange.record.operation == "embeddings"
    assert not asking.exchange.record.generates


async def test_scores_of_a_model_that_embeds_are_cosines() -> None:
    desk = loaded(answers=True)
    body = json.dumps({"query": "q", "documents": ["a", "b", "c"]}).encode()
    half = math.sqrt(0.5)
    vectors = ([1.0, 0.0], [half, half], [-1.0, 0.0], [0.0, 1.0])
    scored = await answered(score_pairs(RERANK, body, client(services(desk))), desk, *vectors)
    assert scored.scores == pytest.approx([half, -1.0, 0.0], abs=1e-6)
    assert scored.usage.prompt_tokens == sum(one.prompt_tokens for one in desk.sequences)


async def test_lists_of_texts_are_compared_place_by_place() -> None:
    desk = loaded(answers=True)
    body = json.dumps({"text_1": ["p", "q"], "text_2": ["a", "b"]}).encode()
    vectors = ([1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0])
    scored = await answered(score_pairs(SCORE, body, client(services(desk))), desk, *vectors)
    assert scored.scores == [1.0, 0.0]


async def test_scores_of_a_cross_encoder_are_its_own() -> None:
    desk = loaded(engine(generates=False, embedding_size=0, num_scores=1), answers=True)
    body = json.dumps({"query": "q", "documents": ["a", "b"]}).encode()
    scored = await answered(score_pairs(RERANK, body, client(services(desk))), desk, [0.25], [7.0])
    assert scored.scores == [0.25, 7.0]


async def test_a_text_that_fails_or_a_model_that_cannot_is_told() -> None:
    desk = loaded(answers=True)
    asking = client(services(desk))
    working = asyncio.ensure_future(embed(EMBEDDINGS, b'{"input":["a","b"]}', asking))
    while len(desk.sequences) < 2:
        await asyncio.sleep(0)
    fail(desk.sequences[0], "it broke", is_refusal=False)
    desk.sequences[0].waker.wake()
    with pytest.raises(EngineFailedError, match="it broke"):
        await working
    generates_only = client(services(loaded(engine(embedding_size=0))))
    with pytest.raises(WrongTaskError):
        await embed(EMBEDDINGS, b'{"input":"a"}', generates_only)


async def test_who_leaves_waits_for_no_vector() -> None:
    desk = loaded(answers=True)
    gone = asyncio.Event()

    async def left() -> None:
        await gone.wait()

    asking = client(services(desk), left)
    working = asyncio.ensure_future(embed(EMBEDDINGS, b'{"input":"a"}', asking))
    while not desk.sequences:
        await asyncio.sleep(0)
    gone.set()
    with pytest.raises(ClientGoneError):
        await working


async def test_where_no_request_is_let_in_no_vector_is_asked_for() -> None:
    desk = loaded(answers=True)
    of = services(desk)
    of.drain.begin()
    for work in (
        embed(EMBEDDINGS, b'{"input":"a"}', client(of)),
        score_pairs(SCORE, b'{"text_1":"a","text_2":"b"}', client(of)),
    ):
        with pytest.raises(DrainingError):
            await work
    assert desk.sequences == []


async def test_a_model_that_generates_nothing_still_embeds() -> None:
    desk = loaded(engine(generates=False))
    work = embed(EMBEDDINGS, b'{"input":"a"}', client(services(desk)))
    _, pooled = await answered(work, desk, [1.0])
    assert len(pooled.vectors) == 1
