"""``python -m tests.dashboard.pictures`` takes the pictures of the docs anew, from a simulated
server under load (docs/images/dashboard-*.png)."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dashboard.admin_client import AdminClient
from tests.dashboard.running import PATIENCE_MS, chromium, dashboard_of
from tests.e2e.quire_server import (
    ROOT,
    QuireServer,
    command_of,
    descendants,
    free_port,
    until,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IMAGES = ROOT / "docs" / "images"
MODEL = "simulated:h100-8b,kv_tokens=40000"
KEYS = ("alice", "bob", "carol")
CLIENTS = 24
SECONDS = 75.0
TEXT = "You are a helpful assistant. Answer in one paragraph and cite the page you read it on. "


@contextmanager
def load(server: QuireServer) -> Iterator[None]:
    """Conversations of three keys that share a system prompt and get answers of many lengths."""
    ends = threading.Event()

    def run(number: int) -> None:
        turn = number
        while not ends.is_set():
            turn += 1
            body = {
                "stream": True,
                "ignore_eos": True,
                "max_tokens": 200 + turn * 131 % 900,
                "messages": [
                    {"role": "system", "content": TEXT * (20 + number % 3 * 20)},
                    {"role": "user", "content": f"Question {turn} of {number}. " * (turn % 40)},
                ],
            }
            key = KEYS[number % 2 if number < CLIENTS - 4 else 2]
            headers = {"authorization": f"Bearer sk-{key}", "content-type": "application/json"}
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
                reply = connection.getresponse()
                while reply.read1(65536) and not ends.is_set():
                    pass
            connection.close()

    for number in range(CLIENTS):
        threading.Thread(target=run, args=(number,), daemon=True).start()
    try:
        yield
    finally:
        ends.set()


def take(browser: Browser, address: str, name: str, text: str, scheme: str = "light") -> None:
    page = browser.new_page(
        viewport={"width": 1280, "height": 800},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page.set_default_timeout(PATIENCE_MS)
    page.goto(address)
    page.get_by_text(text).first.wait_for()
    page.wait_for_timeout(3000)  # drawn to the end
    page.screenshot(path=IMAGES / f"dashboard-{name}.png")
    page.close()
    print(f"docs/images/dashboard-{name}.png")


def main() -> None:
    from playwright.sync_api import sync_playwright

    port = free_port()
    admin = f"http://127.0.0.1:{port}"
    keys = [f"--api-key={key}=sk-{key}" for key in KEYS]
    log = Path(tempfile.mkdtemp()) / "log"
    with (
        QuireServer(
            MODEL, "--admin-port", str(port), "--engine-hang-timeout", "600", *keys
        ) as server,
        dashboard_of(server.url, log, admin=admin) as url,
        sync_playwright() as driver,
        load(server),
    ):
        browser = chromium(driver)
        time.sleep(SECONDS)
        take(browser, f"{url}/live", "live", "What limited the server")
        take(browser, f"{url}/live", "dark", "What limited the server", "dark")
        take(browser, f"{url}/kv", "kv", "Shared prefixes")
        client = AdminClient(admin)
        slowest = client.requests(state="ended", sort="-total", limit="1").requests[0]
        take(browser, f"{url}/request?id={slowest.request_id}&server=0", "request", "It")
        assert server.process is not None
        [engine] = [pid for pid in descendants(server.process.pid) if b"engine" in command_of(pid)]
        os.kill(engine, signal.SIGSTOP)
        try:
            until(lambda: client.overview()[0].silence > 5, 60, "silence")
            take(browser, f"{url}/live", "silent", "Engine silent")
        finally:
            os.kill(engine, signal.SIGCONT)
        browser.close()


if __name__ == "__main__":
    main()
