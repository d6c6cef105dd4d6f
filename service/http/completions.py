"""``POST /v1/completions``, also at ``/completions``."""

from __future__ import annotations

from litestar import Response, post

from service.http.call import HttpCall
from service.http.serve import serve
from service.serving.api import COMPLETIONS_API


@post("/v1/completions", status_code=200, opt={"route": "completions"})
async def completions(request: HttpCall) -> Response[bytes]:
    return await serve(request, COMPLETIONS_API)
