"""The KV cache page in Chromium: the map moves, goes back in time, and leads to requests."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.dashboard.running import IN_CHROMIUM, PATIENCE_MS, watched_server
from tests.e2e.quire_server import QuireServer, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = IN_CHROMIUM

MODEL = "simulated:step=100ms"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[QuireServer, str]]:
    log = tmp_path_factory.mktemp("dashboard") / "log"
    with watched_server(log, MODEL, "--served-model-name", "m") as (server, _, url):
        yield server, url


@pytest.fixture
def page(served: tuple[QuireServer, str], browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{served[1]}/kv")
    yield page
    page.close()


def streaming(server: QuireServer) -> http.client.HTTPConnection:
    """A request that holds blocks until its connection is closed."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = {"model": "m", "prompt": "Hello " * 200, "max_tokens": 100_000, "ignore_eos": True}
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), headers)
    assert connection.getresponse().status == 200
    return connection


def test_it_goes_back_to_what_was_seen_and_forth_to_now(
    served: tuple[QuireServer, str], page: Page
) -> None:
    page.get_by_text("No request holds a block.").wait_for()
    slider, now = page.get_by_label("Time of the map"), page.get_by_role("button", name="Now")
    until(slider.is_enabled, 60, "a map of the past, which is of the idle pool")
    when = page.locator(".time .quiet")
    with closing(streaming(served[0])):
        holder = page.get_by_role("cell", name="req_")
        holder.wait_for()
        assert page.locator("canvas").get_attribute("aria-label") != ""
        assert now.is_disabled()

        slider.focus()
        page.keyboard.press("Home")
        page.get_by_text("No request holds a block.").wait_for()
        assert page.get_by_text("0 of ").count()
        assert when.inner_text().endswith(" ago")

        now.click()
        holder.wait_for()
        assert when.inner_text() == "now"
        assert now.is_disabled()

        request = holder.inner_text()
        holder.get_by_role("link").click()
        page.wait_for_url(f"**/request?id={request}*")


def test_prefixes_that_continue_one_another_are_indented(
    served: tuple[QuireServer, str], page: Page
) -> None:
    page.get_by_text("No prefix has been reused yet.").wait_for()
    common = "The same words at the start of each prompt. " * 20
    for end in ("One.", "Two.", "Three."):
        body = {"model": "m", "prompt": common + end, "max_tokens": 1}
        assert served[0].post("/v1/completions", body)[0] == 200
    section = page.locator("section", has_text="Shared prefixes")
    row = section.get_by_role("row").nth(1)
    row.wait_for()
    cells = row.get_by_role("cell").all_inner_texts()
    assert cells[0].endswith(" tokens")
    assert cells[1] == "2"
    assert cells[3].endswith(" s ago")
    assert cells[4].startswith("req_")
