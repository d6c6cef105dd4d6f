"""``POST /v1/chat/completions``."""

from __future__ import annotations

from litestar import Response, post

from service.http.call import HttpCall
from service.http.serve import serve
from service.serving.api import CHAT_API


@post("/v1/chat/completions", status_code=200, opt={"route": "chat_completions"})
async def chat_completions(request: HttpCall) -> Response[bytes]:
    return await serve(request, CHAT_API)
