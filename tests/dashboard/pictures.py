"""``python -m tests.dashboard.pictures`` takes the pictures of the docs anew: every page, and
the Live page in every state, from simulated servers (docs/images/dashboard-*.png).

The playground's are taken by hand, with pocket."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from dashboard.admin_client import AdminClient
from tests.dashboard.running import PATIENCE_MS, chromium, watched_server
from tests.e2e.quire_server import (
    ROOT,
    QuireServer,
    engine_of,
    stopped,
    until,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright

IMAGES = ROOT / "docs" / "images"
MODEL = "simulated:h100-8b,kv_tokens=40000"
KEYS = ("alice", "bob", "carol")
CLIENTS = 24
# Of load before a picture. The charts draw the last minutes, so what they show is time itself:
# there is no sooner sign to wait for.
SECONDS = 75.0
ADMIN_KEY = "the-operator's-key"
LAST_CHART = "What limited the server"
DRAWN_MS = 3000
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
                if reply.status != 200:  # as a client does that heeds Retry-After
                    ends.wait(1.0)
            connection.close()

    for number in range(CLIENTS):
        threading.Thread(target=run, args=(number,), daemon=True).start()
    try:
        yield
    finally:
        ends.set()


class Shots:
    """Takes pictures of a dashboard's pages, with as few colours as they need."""

    def __init__(self, browser: Browser, dashboard: str) -> None:
        self._visitor = browser.new_context()
        self._dashboard = dashboard

    def sign_in(self, key: str) -> None:
        page = self._visitor.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{self._dashboard}/admin")
        page.get_by_label("Admin key").fill(key)
        page.get_by_role("main").get_by_role("button", name="Sign in").click()
        page.get_by_text("Settings").first.wait_for()
        page.close()

    def take(
        self,
        name: str,
        path: str,
        text: str,
        *,
        dark: bool = False,
        size: tuple[int, int] = (1280, 800),
    ) -> None:
        """Take one when ``text`` is there, and it is drawn to the end."""
        page = self._visitor.new_page()
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{self._dashboard}/{path}")
        self._keep(page, name, text)
        page.close()

    @contextmanager
    def watching(self, path: str) -> Iterator[Callable[[str, str], None]]:
        """Keep a page open, of which pictures are taken by name when a text is there."""
        page = self._visitor.new_page()
        page.set_viewport_size({"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{self._dashboard}/{path}")
        yield lambda name, text: self._keep(page, name, text)
        page.close()

    def _keep(self, page: Page, name: str, text: str) -> None:
        page.get_by_text(text).first.wait_for()
        page.wait_for_timeout(DRAWN_MS)
        drawn = Image.open(io.BytesIO(page.screenshot()))
        file = IMAGES / f"dashboard-{name}.png"
        small = drawn.convert("RGB").quantize(
            256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
        small.save(file, optimize=True)
        print(file.relative_to(ROOT))


@contextmanager
def shown(driver: Playwright, *arguments: str) -> Iterator[tuple[QuireServer, AdminClient, Shots]]:
    """A server, and pictures of the dashboard that shows it."""
    keys = [f"--api-key={key}=sk-{key}" for key in KEYS]
    log = Path(tempfile.mkdtemp()) / "log"
    options = ("--engine-hang-timeout", "600", *keys, *arguments)
    with watched_server(log, MODEL, *options) as (server, client, url):
        browser = chromium(driver)
        yield server, client, Shots(browser, url)
        browser.close()


def of_all_pages(driver: Playwright) -> None:
    """Under load, then while the engine hangs, while another loads, while the server drains, and
    when it is gone."""
    with shown(driver) as (server, client, shots), load(server):
        time.sleep(SECONDS)
        shots.take("live", "live", LAST_CHART)
        shots.take("dark", "live", LAST_CHART, dark=True)
        shots.take("phone", "live", LAST_CHART, size=(400, 860))
        shots.take("kv", "kv", "Shared prefixes")
        shots.take("requests", "requests", "Longest phase")
        shots.take("usage", "usage", "Days start at midnight UTC")
        slowest = client.requests(state="ended", sort="-total", limit="1").requests[0]
        shots.take("request", f"request?id={slowest.request_id}", "Phases")
        engine = engine_of(server)
        with stopped(engine):
            until(lambda: client.overview()[0].silence > 5, 60, "silence")
            shots.take("silent", "live", "Engine silent")
        os.kill(engine, signal.SIGKILL)
        with stopped(engine_of(server, other_than=engine)):
            shots.take("loading", "live", "Loading")
        until(lambda: client.overview()[0].running > CLIENTS / 2, 60, "requests to run again")
        assert server.process is not None
        with shots.watching("live") as take:
            server.process.send_signal(signal.SIGTERM)
            take("draining", "Draining")
            server.process.wait(60)
            take("down", "Unreachable")


def of_few_slots(driver: Playwright) -> None:
    """With nothing to do, and with more than it has slots for."""
    with shown(driver, "--max-num-seqs", "6") as (server, _, shots):
        shots.take("idle", "live", "Idle")
        with load(server):
            time.sleep(SECONDS / 2)
            shots.take("overload", "live", "Limited by slots")


def of_an_operator(driver: Playwright) -> None:
    """A load run, and what an operator may change."""
    with shown(driver, "--admin-key", f"operate:ann={ADMIN_KEY}") as (server, client, shots):
        assert server
        operator = AdminClient(client.url, ADMIN_KEY)
        operator.start_load("chat", 4.0, 20, 16)
        until(lambda: (run := operator.load().run) and run.state == "done", 90, "a load run")
        operator.order("loglevel", level="debug", seconds=600)
        shots.sign_in(ADMIN_KEY)
        shots.take("load", "load", "Done")
        shots.take("admin", "admin", "Settings")


def main() -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        for pictures in (of_all_pages, of_few_slots, of_an_operator):
            pictures(driver)


if __name__ == "__main__":
    main()
