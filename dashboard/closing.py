"""Whether a visitor closed a page, or its connection was lost, which the page opens again."""

from __future__ import annotations

from collections import OrderedDict

import streamlit as st
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The codes with which a browser ends the connection of a page that is closed or loaded anew.
_LEAVING = (1000, 1001)
_MOST = 1_000

_closed: OrderedDict[str, None] = OrderedDict()  # connections, the oldest first


class NotesClosing:
    """Between the web server and Streamlit, which stops a page's script without saying why."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        connection = dict(scope["headers"]).get(b"sec-websocket-key", b"").decode("latin-1")

        async def received() -> Message:
            message = await receive()
            has_left = message["type"] == "websocket.disconnect" and message.get("code") in _LEAVING
            if has_left and connection:
                _closed[connection] = None
                while len(_closed) > _MOST:
                    _closed.popitem(last=False)
            return message

        await self._app(scope, received, send)


def connection_of_page() -> str:
    """What distinguishes this page's connection from all others: the browser made it at random.
    Empty without one, or once it has ended."""
    return str(st.context.headers.get("Sec-Websocket-Key", ""))


def is_closed(connection: str) -> bool:
    """Whether the page was closed. False: its connection is open, or was lost and may come
    back."""
    return connection in _closed
