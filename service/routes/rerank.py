"""``POST /v1/rerank``, ``POST /v2/rerank`` and ``POST /v1/score``.

A cross-encoder reads both texts of a pair together. With any other model that embeds, a score is
the cosine of the two texts' embeddings.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from litestar import Response, post
from litestar.datastructures import State
from litestar.types import Receive

from service.errors import InvalidRequestError, WrongTaskError
from service.pooling.inputs import encode_texts, truncation
from service.pooling.scores import cosine, floats_of
from service.routes.answering import HttpRequest, exchange_of, respond, unless_client_leaves
from service.routes.body import read_body
from service.routes.exchange import Exchange
from service.routes.pooling import pooled_vectors
from service.routes.services import Services
from service.wire.embeddings import PoolingUsage
from service.wire.rerank import (
    RerankAnswer,
    RerankRequest,
    Score,
    ScoreList,
    ScoreRequest,
    decode_rerank,
    decode_score,
    ranked,
)

# A body of some megabytes may ask for one long text to be read with each of thousands.
MAX_JOINED_CHARS = 1 << 24


@post(["/v1/rerank", "/v2/rerank"], status_code=200, opt={"route": "rerank"})
async def rerank(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    exchange = exchange_of(request)
    record = exchange.record
    limit = services.settings.max_body_bytes
    body = await read_body(request.scope, request.receive, limit=limit)
    wanted = decode_rerank(body, exchange.ignored)
    if wanted.return_documents is None:
        version_2 = request.scope["path"].startswith("/v2/")
        wanted = msgspec.structs.replace(wanted, return_documents=not version_2)
    if wanted.max_tokens_per_doc is not None:
        exchange.ignored.add("max_tokens_per_doc")
    record.model = services.model_name(wanted.model)
    scored = await _scored(
        _Pairs([wanted.query], wanted.texts, "query", "documents"),
        wanted,
        services,
        exchange,
        request.receive,
    )
    record.response_id = f"rerank-{uuid.uuid4().hex}"
    answer = RerankAnswer(
        id=record.response_id,
        model=record.model,
        results=ranked(wanted, scored.scores),
        usage=scored.usage,
    )
    exchange.succeed("stop")
    return respond(exchange, msgspec.json.encode(answer))


@post("/v1/score", status_code=200, opt={"route": "score"})
async def score(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    exchange = exchange_of(request)
    record = exchange.record
    limit = services.settings.max_body_bytes
    body = await read_body(request.scope, request.receive, limit=limit)
    wanted = decode_score(body, exchange.ignored)
    record.model = services.model_name(wanted.model)
    scored = await _scored(
        _Pairs(wanted.firsts, wanted.seconds, "text_1", "text_2"),
        wanted,
        services,
        exchange,
        request.receive,
    )
    record.response_id = f"score-{uuid.uuid4().hex}"
    answer = ScoreList(
        id=record.response_id,
        created=int(time.time()),
        model=record.model,
        data=[Score(index=i, score=value) for i, value in enumerate(scored.scores)],
        usage=scored.usage,
    )
    exchange.succeed("stop")
    return respond(exchange, msgspec.json.encode(answer))


@dataclass(frozen=True, slots=True)
class _Pairs:
    """One first text for all second texts, or one for each; and the request's fields."""

    firsts: list[str]
    seconds: list[str]
    first_field: str
    second_field: str

    def joined(self) -> Iterator[tuple[str, str]]:
        """Raises InvalidRequestError where a text that all are paired with is too long for that."""
        if len(self.firsts) > 1:
            return zip(self.firsts, self.seconds, strict=True)
        [first] = self.firsts
        if len(first) * len(self.seconds) > MAX_JOINED_CHARS:
            raise InvalidRequestError(
                f"'{self.first_field}' is too long to be read together with "
                f"{len(self.seconds)} texts.",
                param=self.first_field,
            )
        return ((first, second) for second in self.seconds)


@dataclass(frozen=True, slots=True)
class _Scored:
    scores: list[float]
    usage: PoolingUsage


async def _scored(
    pairs: _Pairs,
    wanted: RerankRequest | ScoreRequest,
    services: Services,
    exchange: Exchange,
    receive: Receive,
) -> _Scored:
    """Raises QuireError."""
    services.admission.check_open(exchange.caller)
    engine = services.engine
    if not (engine.num_scores or engine.embedding_size):
        raise WrongTaskError(f"This model ({engine.architecture}) scores no texts.")
    if engine.embedding_size and wanted.use_activation is False:
        raise WrongTaskError(
            "'use_activation' is only served by cross-encoders; this model's scores are cosines.",
            param="use_activation",
        )
    across = bool(engine.num_scores)
    seconds = [f"{pairs.second_field}[{i}]" for i in range(len(pairs.seconds))]
    if across:
        texts: list[str | tuple[str, str]] = list(pairs.joined())
        names = seconds
    else:
        texts = [*pairs.firsts, *pairs.seconds]
        names = [f"{pairs.first_field}[{i}]" for i in range(len(pairs.firsts))] + seconds
    inputs = await encode_texts(
        texts,
        services.checkpoint.tokenizer,
        truncated=truncation(wanted.truncate_prompt_tokens, None, longest=engine.max_model_len),
    )
    pooled = await unless_client_leaves(
        receive,
        pooled_vectors(
            inputs,
            names,
            services,
            exchange,
            activate=wanted.use_activation if across else True,
            priority=wanted.priority,
        ),
    )
    usage = PoolingUsage(pooled.prompt_tokens, pooled.prompt_tokens)
    if across:
        return _Scored([floats_of(vector)[0] for vector in pooled.vectors], usage)
    return _Scored(await _cosines(pooled.vectors, len(pairs.firsts)), usage)


async def _cosines(vectors: list[bytes], num_firsts: int) -> list[float]:
    firsts = [floats_of(vector) for vector in vectors[:num_firsts]]
    scores = []
    for index, vector in enumerate(vectors[num_firsts:]):
        scores.append(cosine(firsts[0 if num_firsts == 1 else index], floats_of(vector)))
        await asyncio.sleep(0)  # thousands of products would hold up others' streams
    return scores
