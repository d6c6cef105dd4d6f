"""``POST /v1/rerank``, ``POST /v2/rerank`` and ``POST /v1/score``."""

from __future__ import annotations

import time

import msgspec
from litestar import Response

from service.http.call import HttpCall
from service.http.serves import serves
from service.preparation.scores import RERANK, RERANK_V2, SCORE
from service.serving.pooling import score_pairs
from service.wire.texts.rerank import RerankAnswer, Score, ScoreList, ranked


@serves("POST /v1/rerank", "POST /v2/rerank")
async def rerank(request: HttpCall) -> Response[bytes]:
    step = RERANK_V2 if request.scope["path"].startswith("/v2/") else RERANK
    scored = await score_pairs(step, await request.read(), request.requester)
    record = request.exchange.record
    record.response_id = request.services.ids.new("rerank-")
    answer = RerankAnswer(
        id=record.response_id,
        model=record.model,
        results=ranked(scored.prepared.request, scored.scores),
        usage=scored.usage,
    )
    return request.answer(msgspec.json.encode(answer))


@serves("POST /v1/score")
async def score(request: HttpCall) -> Response[bytes]:
    scored = await score_pairs(SCORE, await request.read(), request.requester)
    record = request.exchange.record
    record.response_id = request.services.ids.new("score-")
    answer = ScoreList(
        id=record.response_id,
        created=int(time.time()),
        model=record.model,
        data=[Score(index=i, score=value) for i, value in enumerate(scored.scores)],
        usage=scored.usage,
    )
    return request.answer(msgspec.json.encode(answer))
