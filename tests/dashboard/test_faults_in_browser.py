"""What the pages show when nothing happens, under load, while the engine hangs and when the server
is gone: in words, without a message in the console, readable for everybody."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.dashboard.accessible import AXE, ours, violations
from tests.dashboard.running import IN_CHROMIUM, PATIENCE_MS, dashboard_of
from tests.e2e.quire_server import QuireServer, descendants, engine_of, stopped, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

STREAMS = 20
SILENT = rf"Engine silent for ([\d.]+) s with {STREAMS} requests in flight"

pytestmark = [*IN_CHROMIUM, pytest.mark.one_process]


@pytest.fixture
def server() -> Iterator[QuireServer]:
    with QuireServer("simulated:h100-8b", "--engine-hang-timeout", "600") as running:
        yield running


@pytest.fixture
def dashboard(server: QuireServer, tmp_path: Path) -> Iterator[str]:
    with dashboard_of(server.url, tmp_path / "log") as url:
        yield url


def open_pages(browser: Browser, dashboard: str, said: list[str]) -> list[Page]:
    """Both pages, light and dark; ``said`` gets what the browser's console says."""
    pages = []
    for scheme in ("light", "dark"):
        for path in ("live", "playground"):
            page = browser.new_page(
                viewport={"width": 1280, "height": 800},
                color_scheme="light" if scheme == "light" else "dark",
            )
            page.set_default_timeout(PATIENCE_MS)
            page.on("console", lambda message: said.extend(ours(message)))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.goto(f"{dashboard}/{path}")
            pages.append(page)
    return pages


def first_said(page: Page, pattern: str) -> str:
    """The group of this pattern at the first frame in which the page's text matches it.

    The page looks for it: a busy machine may let this process read the text a few seconds later,
    when it says something else.
    """
    found = page.wait_for_function(
        "pattern => document.body.innerText.match(new RegExp(pattern))?.[1]", arg=pattern
    )
    return str(found.json_value())


@contextmanager
def load(server: QuireServer) -> Iterator[None]:
    """Streams that begin anew when they end, until the server is gone."""
    over = threading.Event()
    body = {"model": "simulated:h100-8b", "stream": True, "max_tokens": 2000, "ignore_eos": True}
    messages = [{"role": "user", "content": "Tell me a story."}]
    request = urllib.request.Request(
        f"{server.url}/v1/chat/completions",
        json.dumps({**body, "messages": messages}).encode(),
        {"Content-Type": "application/json"},
    )

    def stream() -> None:
        while not over.is_set():
            with (
                suppress(OSError, ValueError, HTTPException),
                urllib.request.urlopen(request) as reply,
            ):
                while reply.read1(65536) and not over.is_set():
                    pass

    threads = [threading.Thread(target=stream, daemon=True) for _ in range(STREAMS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()


def check(pages: list[Page], state: str, wrong: dict[str, list[str]]) -> None:
    for number, page in enumerate(pages):
        page.wait_for_timeout(200)  # drawn, and not in the middle of it
        if found := violations(page):
            wrong[f"{state}, page {number}"] = found


@pytest.mark.timeout(600)
def test_every_state_is_said_and_readable_and_the_console_is_silent(
    server: QuireServer, dashboard: str, browser: Browser
) -> None:
    said: list[str] = []
    wrong: dict[str, list[str]] = {}
    pages = open_pages(browser, dashboard, said)
    live, playground = pages[0], pages[1]
    for page in pages[::2]:
        page.get_by_text("Ready", exact=True).first.wait_for()
        page.get_by_text("no traffic in the last 30 s").first.wait_for()
        assert page.get_by_text("Page not found").count() == 0
        assert page.url == f"{dashboard}/live"
    playground.get_by_test_id("stChatInputTextArea").fill("Hello")
    playground.get_by_test_id("stChatInputTextArea").press("Enter")
    playground.get_by_text("finish:").first.wait_for()
    check(pages, "idle", wrong)
    until(lambda: fits(live), 10, "a page that fits")
    with load(server):
        live.locator(".quire-tile").filter(has_text="Running").get_by_text(
            re.compile(f"^{STREAMS} / ")
        ).wait_for()
        check(pages, "load", wrong)
        until(lambda: fits(live), 10, "a page that fits")
        with stopped(engine_of(server)):
            assert float(first_said(live, SILENT)) <= 5  # the server's own count
            text = live.locator(".quire-tiles").inner_text()
            assert "no traffic" not in text
            assert f"{STREAMS} requests in flight" in text
            check(pages, "hung", wrong)
            until(lambda: fits(live), 10, "a page that fits")
        assert server.process is not None
        server.process.kill()
        for child in descendants(server.process.pid):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        live.get_by_text("Unreachable", exact=True).first.wait_for()
        live.get_by_text("these numbers are out of date").first.wait_for()
        check(pages, "down", wrong)
    for page in pages:
        page.close()
    assert wrong == {}
    assert said == []
    if not AXE.exists():
        pytest.skip("rules of accessibility: needs axe-core (make test installs it)")


def fits(page: Page) -> bool:
    """Without scrolling, up and down or sideways."""
    return bool(
        page.get_by_test_id("stMain").evaluate(
            "main => main.scrollHeight <= main.clientHeight && main.scrollWidth <= main.clientWidth"
        )
    )


def test_the_live_page_is_at_the_root_too_and_fits_a_phone(
    server: QuireServer, dashboard: str, browser: Browser
) -> None:
    page = browser.new_page(viewport={"width": 400, "height": 800})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(dashboard)
    page.wait_for_url(f"{dashboard}/live")
    tiles = page.locator(".quire-tile")
    until(lambda: tiles.count() == 8, 60, "the tiles")
    # Both are measured at once, as the page moves while it is being drawn.
    [first, second] = tiles.evaluate_all(
        "tiles => tiles.slice(0, 2).map(tile => tile.getBoundingClientRect().top)"
    )
    assert first == second  # two in a row
    main = page.get_by_test_id("stMain")
    assert main.evaluate("main => main.scrollWidth <= main.clientWidth")
    page.close()
