"""``POST /v1/responses/compact`` and ``POST /v1/responses/input_tokens``."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from litestar import Response

from service.http.answering import finish_whole
from service.http.call import HttpCall
from service.http.responses.create import begin_response, with_stored
from service.http.serves import serves
from service.preparation.jobs import Answered
from service.preparation.responses import INPUT_TOKENS
from service.wire.responses.compaction import CompactedResponse


class _Summary(msgspec.Struct):
    created_at: int
    output: list[msgspec.Raw]
    usage: msgspec.Raw


@serves("POST /v1/responses/compact")
async def compact_response(request: HttpCall) -> Response[bytes]:
    client = request.requester
    begun = await begin_response(request, client, compacts=True)
    summary = begun.lifecycle.answer
    await finish_whole(client.exchange, begun.generation, request.receive, summary)
    answer = msgspec.json.decode(b"".join(summary.whole()), type=_Summary)
    kept = msgspec.json.decode(begun.said, type=list[msgspec.Raw])
    compacted = CompactedResponse(
        id=summary.id,
        created_at=answer.created_at,
        output=cast(list[dict[str, Any]], [*kept, *answer.output]),
        usage=cast(Any, answer.usage),
    )
    return request.answer(msgspec.json.encode(compacted))


@serves("POST /v1/responses/input_tokens")
async def count_input_tokens(request: HttpCall) -> Response[bytes]:
    client = request.requester
    body = await request.read()
    answered = await with_stored(INPUT_TOKENS, body, request, client, {"response_id": "resp_"})
    assert isinstance(answered, Answered)
    return request.answer(answered.body)
