"""``POST /v1/rerank``, ``POST /v2/rerank`` and ``POST /v1/score``.

A cross-encoder reads both texts of a pair together. With any other model that embeds, a score is
the cosine of the two texts' embeddings.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass

import msgspec
from litestar import Response, post

from service.http.call import HttpCall
from service.pooling.scores import cosine, floats_of
from service.preparation.jobs import PreparedRerank, PreparedScore, RerankJob, ScoreJob
from service.serving.client import Client
from service.serving.pooling import pooled_vectors
from service.serving.prepare import prepare
from service.wire.texts.embeddings import PoolingUsage
from service.wire.texts.rerank import RerankAnswer, Score, ScoreList, ranked


@post(["/v1/rerank", "/v2/rerank"], status_code=200, opt={"route": "rerank"})
async def rerank(request: HttpCall) -> Response[bytes]:
    client = request.requester
    record = client.exchange.record
    body = await request.read()
    tells_documents = not request.scope["path"].startswith("/v2/")
    prepared = await prepare(
        RerankJob,
        PreparedRerank,
        body,
        client,
        admit=client.admit_open,
        tells_documents=tells_documents,
    )
    del body  # it may be large, and an answer may take long
    scored = await _scored(prepared, client)
    record.response_id = f"rerank-{uuid.uuid4().hex}"
    answer = RerankAnswer(
        id=record.response_id,
        model=record.model,
        results=ranked(prepared.request, scored.scores),
        usage=scored.usage,
    )
    return request.answer(msgspec.json.encode(answer))


@post("/v1/score", status_code=200, opt={"route": "score"})
async def score(request: HttpCall) -> Response[bytes]:
    client = request.requester
    record = client.exchange.record
    body = await request.read()
    prepared = await prepare(ScoreJob, PreparedScore, body, client, admit=client.admit_open)
    del body  # it may be large, and an answer may take long
    scored = await _scored(prepared, client)
    record.response_id = f"score-{uuid.uuid4().hex}"
    answer = ScoreList(
        id=record.response_id,
        created=int(time.time()),
        model=record.model,
        data=[Score(index=i, score=value) for i, value in enumerate(scored.scores)],
        usage=scored.usage,
    )
    return request.answer(msgspec.json.encode(answer))


@dataclass(frozen=True, slots=True)
class _Scored:
    scores: list[float]
    usage: PoolingUsage


async def _scored(prepared: PreparedRerank | PreparedScore, client: Client) -> _Scored:
    """Raises QuireError."""
    wanted = prepared.request
    across = prepared.num_firsts == 0
    pooled = await client.unless_gone(
        pooled_vectors(
            prepared.inputs,
            client.services,
            client.exchange,
            activate=wanted.use_activation if across else True,
            priority=wanted.priority,
        )
    )
    usage = PoolingUsage(pooled.prompt_tokens, pooled.prompt_tokens)
    if across:
        return _Scored([floats_of(vector)[0] for vector in pooled.vectors], usage)
    return _Scored(await _cosines(pooled.vectors, prepared.num_firsts), usage)


async def _cosines(vectors: list[bytes], num_firsts: int) -> list[float]:
    firsts = [floats_of(vector) for vector in vectors[:num_firsts]]
    scores = []
    for index, vector in enumerate(vectors[num_firsts:]):
        scores.append(cosine(firsts[0 if num_firsts == 1 else index], floats_of(vector)))
        await asyncio.sleep(0)  # thousands of products would hold up others' streams
    return scores
