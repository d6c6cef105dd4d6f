"""``POST /v1/embeddings``, also at ``/embeddings``."""

from __future__ import annotations

import uuid

from litestar import Response, post
from litestar.datastructures import State

from service.http.answering import HttpRequest, respond_in_pieces
from service.http.body import read_body
from service.http.pooling import Pooled, pooled_vectors
from service.http.prepare import Client, client_of, prepare
from service.http.services import Services
from service.preparation.jobs import EmbeddingsJob, PreparedEmbeddings
from service.wire.texts.embeddings import list_pieces


@post("/v1/embeddings", status_code=200, opt={"route": "embeddings"})
async def embeddings(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    client = client_of(request, services)
    record = client.exchange.record
    record.operation = "embeddings"
    limit = services.settings.max_body_bytes
    body = await read_body(request.scope, request.receive, limit=limit)
    prepared = await prepare(
        EmbeddingsJob, PreparedEmbeddings, body, client, admit=client.admit_open
    )
    del body  # it may be large, and an answer may take long
    pooled = await embedded(prepared, client)
    record.response_id = f"embd-{uuid.uuid4().hex}"
    answer = list_pieces(
        pooled.vectors,
        as_base64=prepared.request.encoding_format == "base64",
        id=record.response_id,
        model=record.model,
        prompt_tokens=pooled.prompt_tokens,
    )
    return respond_in_pieces(client.exchange, answer, "stop")


async def embedded(prepared: PreparedEmbeddings, client: Client) -> Pooled:
    """The vectors that any API's request asks for. Raises QuireError."""
    wanted = prepared.request
    return await client.unless_gone(
        pooled_vectors(
            prepared.inputs,
            client.services,
            client.exchange,
            dimensions=wanted.dimensions,
            activate=wanted.normalize,
            priority=wanted.priority,
            cache_salt=wanted.cache_salt or "",
        )
    )
