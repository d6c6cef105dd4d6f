"""Leads a visitor who has signed in by OIDC, or failed to, back to the page that offered it."""

from __future__ import annotations

from http import HTTPStatus
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
FAILED = "sign-in-failed"  # the parameter of a page whose visitor could not be signed in
_COOKIE_SECONDS = 600
_USER_COOKIE = "_streamlit_user="
_NO_USER = f'{_USER_COOKIE}""'  # the cookie is deleted


class ReturnsAfterSignIn:
    """Between the web server and Streamlit, which leads everyone who comes back from the identity
    provider to its start page, and does not show that a sign-in failed. While the visitor is at the
    provider, a cookie has the page's address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in (LOGIN, CALLBACK):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        change = _lead_to_provider if scope["path"] == LOGIN else _lead_back

        async def changed(message: Message) -> None:
            if message["type"] == "http.response.start":
                change(request, message)
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
    query = urlencode([item for item in parse_qsl(parts.query) if item[0] != FAILED])
    return f"/{name}?{query}" if query else f"/{name}"


def _lead_to_provider(request: Request, answer: Message) -> None:
    address = page_address(request.headers.get("referer", ""))
    headers = MutableHeaders(scope=answer)
    if answer["status"] == HTTPStatus.BAD_REQUEST:  # the provider did not answer, for example
        answer["status"] = HTTPStatus.FOUND.value
        headers["location"] = _failed(address)
    else:
        _set_cookie(headers, address)


def _lead_back(request: Request, answer: Message) -> None:
    address = page_address(unquote(request.cookies.get(COOKIE, "")))
    headers = MutableHeaders(scope=answer)
    if answer["status"] == HTTPStatus.FOUND:
        # Without these parameters the visitor comes from the provider's page for signing out.
        came_to_sign_in = not {"code", "error"}.isdisjoint(request.query_params)
        if came_to_sign_in and not _signs_in(headers):
            headers["location"] = _failed(address)
        elif address:
            headers["location"] = address
    _set_cookie(headers, "")


def _signs_in(headers: MutableHeaders) -> bool:
    cookies = headers.getlist("set-cookie")
    return any(one.startswith(_USER_COOKIE) and not one.startswith(_NO_USER) for one in cookies)


def _failed(address: str) -> str:
    return f"{address or '/'}{'&' if '?' in address else '?'}{FAILED}=yes"


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
