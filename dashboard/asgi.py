"""The dashboard as a web application: Streamlit's pages, and the feed that they draw."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import streamlit as st
from starlette.middleware import Middleware

from dashboard.closing import NotesClosing
from dashboard.feeds import feeds
from dashboard.own_content import FetchesOwnContent
from dashboard.routes import ROUTES
from dashboard.sign_in_return import ReturnsAfterSignIn


@asynccontextmanager
async def lifespan(_: st.App) -> AsyncGenerator[dict[str, Any], None]:
    _end_feeds_first()
    yield {}


def _end_feeds_first() -> None:
    """The web server waits for open connections before it stops; feeds would never end."""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)

        def stop(*arguments: Any, before: Any = before) -> None:
            loop.call_soon_threadsafe(feeds().close)
            if callable(before):
                before(*arguments)

        signal.signal(number, stop)


app = st.App(
    Path(__file__).with_name("app.py"),
    lifespan=lifespan,
    routes=ROUTES,
    middleware=[
        Middleware(FetchesOwnContent),
        Middleware(NotesClosing),
        Middleware(ReturnsAfterSignIn),
    ],
)
