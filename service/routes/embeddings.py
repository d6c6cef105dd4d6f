"""``POST /v1/embeddings``, also at ``/embeddings``."""

from __future__ import annotations

import asyncio

from litestar import Response, post
from litestar.datastructures import State

from engine.messages import Ready
from service.errors import InvalidRequestError, WrongTaskError
from service.pooling.inputs import Input, Truncation, encode_texts, truncate_ids, truncation
from service.routes.answering import HttpRequest, exchange_of, respond, unless_client_leaves
from service.routes.body import read_body
from service.routes.exchange import Exchange
from service.routes.pooling import Pooled, pooled_vectors
from service.routes.prepare import check_token_ids
from service.routes.services import Services
from service.wire.embeddings import (
    EmbeddingRequest,
    decode_embeddings,
    encode_embedding,
    encode_list,
)


@post("/v1/embeddings", status_code=200, opt={"route": "embeddings"})
async def embeddings(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    exchange = exchange_of(request)
    record = exchange.record
    limit = services.settings.max_body_bytes
    body = await read_body(request.scope, request.receive, limit=limit)
    wanted = decode_embeddings(body, exchange.ignored)
    record.client_request_id = record.client_request_id or wanted.request_id
    record.operation = "embeddings"
    record.model = services.model_name(wanted.model)
    pooled = await unless_client_leaves(request.receive, embedded(wanted, services, exchange))
    encoded = []
    for index, vector in enumerate(pooled.vectors):
        as_base64 = wanted.encoding_format == "base64"
        encoded.append(encode_embedding(index, vector, as_base64=as_base64))
        await asyncio.sleep(0)  # thousands of vectors would hold up others' streams
    answer = encode_list(encoded, model=record.model, prompt_tokens=pooled.prompt_tokens)
    exchange.succeed("stop")
    return respond(exchange, answer)


async def embedded(wanted: EmbeddingRequest, services: Services, exchange: Exchange) -> Pooled:
    """The vectors that any API's request asks for. Raises QuireError."""
    services.admission.check_open(exchange.caller)
    _check_dimensions(wanted, services.engine)
    return await pooled_vectors(
        await _inputs(wanted, services),
        wanted.names,
        services,
        exchange,
        dimensions=wanted.dimensions,
        activate=wanted.normalize,
        priority=wanted.priority,
        cache_salt=wanted.cache_salt or "",
    )


def _check_dimensions(wanted: EmbeddingRequest, engine: Ready) -> None:
    """Raises WrongTaskError for a model without embeddings, InvalidRequestError for a length that
    its embeddings cannot be cut to."""
    size = engine.embedding_size
    if not size:
        raise WrongTaskError(
            f"This model ({engine.architecture}) makes no embeddings"
            + (
                "; it scores pairs of texts: see /v1/rerank and /v1/score."
                if engine.num_scores
                else "."
            )
        )
    if wanted.dimensions is None:
        return
    allowed = (*engine.matryoshka_dimensions, size)
    if wanted.dimensions > size:
        raise InvalidRequestError(
            f"'dimensions' may be at most {size} with this model.", param="dimensions"
        )
    if engine.matryoshka_dimensions and wanted.dimensions not in allowed:
        raise InvalidRequestError(
            f"This model's embeddings can be cut to {', '.join(map(str, allowed))} dimensions.",
            param="dimensions",
        )


async def _inputs(wanted: EmbeddingRequest, services: Services) -> list[Input]:
    engine = services.engine
    limit, side = wanted.truncation
    truncated: Truncation | None = truncation(limit, side, longest=engine.max_model_len)
    texts, ids = [], []
    for one in wanted.inputs:
        if isinstance(one, str):
            texts.append(one)
        else:
            check_token_ids(one, engine.vocab_size, "input")
            ids.append(Input(truncate_ids(one, truncated)))
    if ids:
        return ids
    return await encode_texts(
        texts,
        services.checkpoint.tokenizer,
        add_special_tokens=wanted.add_special_tokens,
        truncated=truncated,
    )
