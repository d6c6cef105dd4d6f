"""Makes browsers fetch what they draw from the dashboard alone, whatever a text on a page says."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Streamlit writes styles and some pictures into its pages. What its scripts may fetch is not
# limited: no text on a page is a script.
_POLICY = "; ".join(
    (
        "img-src 'self' data: blob:",
        "media-src 'self' data: blob:",
        "font-src 'self' data:",
        "style-src 'self' 'unsafe-inline'",
        "frame-src 'self'",
        "object-src 'none'",
    )
)
HEADERS = {
    "content-security-policy": _POLICY,
    # Some browsers look up the hosts of links before anyone clicks them.
    "x-dns-prefetch-control": "off",
}


class FetchesOwnContent:
    """Adds these headers to each response. ``dashboard.markdown`` writes texts so that nothing is
    fetched; this is for what it might overlook."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def changed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, changed if scope["type"] == "http" else send)
