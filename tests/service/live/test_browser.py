"""A page of another origin that calls the API, in a real browser."""

from __future__ import annotations

import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.running import RunningService

playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")

CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.debian,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium"),
]

FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")

CALL = """
async ([url, key]) => {
  const ask = (path, body) => fetch(url + path, {
    method: body ? "POST" : "GET",
    headers: {
      "authorization": "Bearer " + key, "content-type": "application/json",
      "x-stainless-os": "Browser", "anthropic-dangerous-direct-browser-access": "true",
    },
    body: body && JSON.stringify(body),
  });
  const chat = { messages: [{ role: "user", content: "Hi" }], max_tokens: 4 };
  const models = await ask("/v1/models");
  const whole = await ask("/v1/chat/completions", chat);
  const stream = await ask("/v1/chat/completions", { ...chat, stream: true });
  const wrong = await ask("/v1/chat/completions", { ...chat, temperature: -1 });
  return {
    models: (await models.json()).data.length,
    id: models.headers.get("x-request-id"),
    whole: (await whole.json()).object,
    stream: await stream.text(),
    status: wrong.status,
    error: (await wrong.json()).error.param,
  };
}
"""
OPEN = """
(url) => new Promise((resolve) => {
  const socket = new WebSocket(url);
  socket.onopen = () => resolve("open");
  socket.onerror = () => resolve("refused");
})
"""


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>page</title>")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def page_url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser_page(page_url: str) -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_page()
        page.goto(page_url)
        yield page
        browser.close()


def test_a_page_that_is_allowed_calls_and_streams(
    tiny_model: Path, tmp_path: Path, page_url: str, browser_page: Any
) -> None:
    options = ("--api-key", "key", "--allowed-origins", page_url)
    with RunningService(tiny_model, tmp_path, worker_args=options) as service:
        got = browser_page.evaluate(CALL, [service.url, "key"])
        assert got["models"] == 1
        assert got["id"].startswith("req_")
        assert got["whole"] == "chat.completion"
        assert got["stream"].endswith("data: [DONE]\n\n")
        assert (got["status"], got["error"]) == (400, "temperature")


def test_a_page_that_is_not_allowed_gets_nothing(
    service: RunningService, browser_page: Any
) -> None:
    with pytest.raises(playwright.Error, match="Failed to fetch"):
        browser_page.evaluate(CALL, [service.url, "unused"])
    socket = f"ws://127.0.0.1:{service.port}/v1/responses"
    assert browser_page.evaluate(OPEN, socket) == "refused"
