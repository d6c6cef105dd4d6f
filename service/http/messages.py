"""``POST /v1/messages`` and ``POST /v1/messages/count_tokens``, Anthropic's API."""

from __future__ import annotations

from litestar import Response, post

from service.http.call import HttpCall
from service.http.serve import serve
from service.preparation.messages import COUNT_TOKENS
from service.serving.api import MESSAGES_API
from service.serving.prepare import prepare


@post("/v1/messages", status_code=200, opt={"route": "messages"})
async def messages(request: HttpCall) -> Response[bytes]:
    return await serve(request, MESSAGES_API)


@post("/v1/messages/count_tokens", status_code=200, opt={"route": "count_tokens"})
async def count_tokens(request: HttpCall) -> Response[bytes]:
    answered = await prepare(COUNT_TOKENS, await request.read(), request.requester)
    return request.answer(answered.body)
