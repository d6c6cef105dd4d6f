"""What browsers may fetch; test_browser.py has it in a browser."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket

from dashboard.own_content import HEADERS, FetchesOwnContent


async def greet(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("Hello")
    await socket.close()


@pytest.fixture
def browser() -> TestClient:
    routes = [
        Route("/", lambda _: PlainTextResponse("Hello")),
        WebSocketRoute("/stream", greet),
    ]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(FetchesOwnContent)]))


@pytest.mark.parametrize("path", ["/", "/missing"])
def test_each_response_says_what_may_be_fetched(browser: TestClient, path: str) -> None:
    headers = browser.get(path).headers
    assert {name: headers[name] for name in HEADERS} == HEADERS


def test_a_web_socket_is_left_as_it_is(browser: TestClient) -> None:
    with browser.websocket_connect("/stream") as socket:
        assert socket.receive_text() == "Hello"
