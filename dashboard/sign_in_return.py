"""Leads a visitor who has signed in by OIDC back to the page that offered it."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.following import PAGES

# Streamlit's routes: to the identity provider, and back from it.
LOGIN, CALLBACK = "/auth/login", "/oauth2callback"
COOKIE = "quire_sign_in_return"
MOST_CHARACTERS = 1_000  # of an address; a cookie has at most 4096 bytes
_COOKIE_SECONDS = 600


class ReturnsAfterSignIn:
    """Between the web server and Streamlit, which leads everyone who has signed in to its start
    page. While the visitor is at the identity provider, a cookie has the page's address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in (LOGIN, CALLBACK):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        change = _remember if scope["path"] == LOGIN else _lead_back

        async def changed(message: Message) -> None:
            if message["type"] == "http.response.start":
                change(request, MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, changed)


def page_address(url: str) -> str:
    """Return the path and query of a URL of this dashboard's pages; empty for any other, since
    browsers send what they like."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    name = parts.path.removeprefix("/")
    if name not in PAGES or len(url) > MOST_CHARACTERS:
        return ""
    query = urlencode(parse_qsl(parts.query))
    return f"/{name}?{query}" if query else f"/{name}"


def _remember(request: Request, headers: MutableHeaders) -> None:
    _set_cookie(headers, page_address(request.headers.get("referer", "")))


def _lead_back(request: Request, headers: MutableHeaders) -> None:
    address = page_address(unquote(request.cookies.get(COOKIE, "")))
    if address and "location" in headers:
        headers["location"] = address
    _set_cookie(headers, "")


def _set_cookie(headers: MutableHeaders, address: str) -> None:
    """Set the cookie, or delete it if ``address`` is empty."""
    made = Response()
    made.set_cookie(
        COOKIE,
        quote(address, safe=""),
        max_age=_COOKIE_SECONDS if address else 0,
        path=CALLBACK,
        httponly=True,
        samesite="lax",
    )
    headers.append("set-cookie", made.headers["set-cookie"])
