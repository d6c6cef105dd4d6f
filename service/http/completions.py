"""``POST /v1/completions``, also at ``/completions``."""

from __future__ import annotations

from litestar import Response

from service.http.call import HttpCall
from service.http.serve import serve
from service.http.serves import serves
from service.serving.api import COMPLETIONS_API


@serves("POST /v1/completions")
async def completions(request: HttpCall) -> Response[bytes]:
    return await serve(request, COMPLETIONS_API)
