"""``POST /v1/chat/completions``."""

from __future__ import annotations

from litestar import Response

from service.http.call import HttpCall
from service.http.serve import serve
from service.http.serves import serves
from service.serving.api import CHAT_API


@serves("POST /v1/chat/completions")
async def chat_completions(request: HttpCall) -> Response[bytes]:
    return await serve(request, CHAT_API)
