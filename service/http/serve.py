"""Serves the route of any API that answers with generated text."""

from __future__ import annotations

from typing import TypeVar

from litestar import Response

from service.http.answering import answer_whole
from service.http.call import HttpCall
from service.http.replay import stream_answer
from service.preparation.jobs import PreparedGeneration
from service.serving.api import Api, begin
from service.serving.stream import Answer

_Made = TypeVar("_Made", bound=PreparedGeneration)


async def serve(request: HttpCall, api: Api[_Made, Answer]) -> Response[bytes]:
    """Raises QuireError."""
    client = request.requester
    generation, answer = await begin(api, await request.read(), client)
    if client.exchange.record.stream:
        return stream_answer(request, generation, answer)
    return await answer_whole(client.exchange, generation, answer, request.receive)
