"""``POST /v1/embeddings``, also at ``/embeddings``."""

from __future__ import annotations

from litestar import Response, post

from service.http.answering import respond_in_pieces
from service.http.call import HttpCall
from service.preparation.jobs import EmbeddingsJob, PreparedEmbeddings
from service.serving.pooling import embedded
from service.serving.prepare import prepare
from service.wire.texts.embeddings import list_pieces


@post("/v1/embeddings", status_code=200, opt={"route": "embeddings"})
async def embeddings(request: HttpCall) -> Response[bytes]:
    client = request.requester
    record = client.exchange.record
    record.operation = "embeddings"
    body = await request.read()
    prepared = await prepare(
        EmbeddingsJob, PreparedEmbeddings, body, client, admit=client.admit_open
    )
    del body  # it may be large, and an answer may take long
    pooled = await embedded(prepared, client)
    answer = list_pieces(
        pooled.vectors,
        as_base64=prepared.request.encoding_format == "base64",
        model=record.model,
        prompt_tokens=pooled.prompt_tokens,
    )
    return respond_in_pieces(client.exchange, answer, "stop")
