"""``POST /v1/embeddings``, also at ``/embeddings``."""

from __future__ import annotations

from litestar import Response

from service.http.answering import respond_in_pieces
from service.http.call import HttpCall
from service.http.serves import serves
from service.preparation.embeddings import EMBEDDINGS
from service.serving.pooling import embed
from service.wire.texts.embeddings import list_pieces


@serves("POST /v1/embeddings")
async def embeddings(request: HttpCall) -> Response[bytes]:
    wanted, pooled = await embed(EMBEDDINGS, await request.read(), request.requester)
    record = request.exchange.record
    record.response_id = request.services.ids.new("embd-")
    answer = list_pieces(
        pooled.vectors,
        as_base64=wanted.encoding_format == "base64",
        id=record.response_id,
        model=record.model,
        prompt_tokens=pooled.prompt_tokens,
    )
    return respond_in_pieces(request.exchange, answer, "stop")
