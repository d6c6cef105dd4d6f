"""The KV cache page in Chromium: the map moves, goes back in time, and leads to requests."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import httpx
import pytest

from dashboard.admin_client import AdminClient
from tests.dashboard.running import IN_CHROMIUM, PATIENCE_MS, watched_server
from tests.e2e.quire_server import QuireServer, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [*IN_CHROMIUM, pytest.mark.one_process]

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

        # A busy dashboard may draw the page anew between focus and key, which loses the focus.
        until(lambda: slider.press("Home") or now.is_enabled(), 60, "the oldest map")
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


def test_each_of_two_engines_can_be_looked_at(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> None:
    log = tmp_path_factory.mktemp("dashboard") / "log"
    arguments = ("--served-model-name", "m", "--data-parallel-size", "2")
    with watched_server(log, MODEL, *arguments) as (server, admin, url):
        until(lambda: server.total("quire_engines", state="ok") == 2, 120, "both engines")
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE_MS)
        with closing(page), closing(streaming(server)):
            assert admin.overview()[0].engines == 2
            busy = until(lambda: busy_engines(admin), 60, "an engine that holds blocks")
            assert len(busy) == 1
            page.goto(f"{url}/kv")
            # Each is drawn after the other one, so that what is seen is not still of that.
            for engine in (*busy, 1 - busy[0], *busy):
                page.get_by_role("combobox", name="Engine").first.click()
                page.get_by_role("option", name=f"Engine {engine}", exact=True).click()
                is_busy = engine in busy
                holder = page.get_by_role("cell", name="req_")
                holder.wait_for(state="visible" if is_busy else "detached")
                idle = page.get_by_text("No request holds a block.")
                idle.wait_for(state="detached" if is_busy else "visible")


def busy_engines(admin: AdminClient) -> list[int]:
    """Return which of two engines have requests that hold blocks."""
    owners = [httpx.get(f"{admin.url}/admin/v1/kv?engine={number}").json() for number in (0, 1)]
    return [number for number, found in enumerate(owners) if found["owners"]]
