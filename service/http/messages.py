"""``POST /v1/messages`` and ``POST /v1/messages/count_tokens``, Anthropic's API."""

from __future__ import annotations

from litestar import Response

from service.http.call import HttpCall
from service.http.serve import serve
from service.http.serves import serves
from service.preparation.messages import COUNT_TOKENS
from service.serving.api import MESSAGES_API
from service.serving.prepare import prepare


@serves("POST /v1/messages")
async def messages(request: HttpCall) -> Response[bytes]:
    return await serve(request, MESSAGES_API)


@serves("POST /v1/messages/count_tokens")
async def count_tokens(request: HttpCall) -> Response[bytes]:
    answered = await prepare(COUNT_TOKENS, await request.read(), request.requester)
    return request.answer(answered.body)
