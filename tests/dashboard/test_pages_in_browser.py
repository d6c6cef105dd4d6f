"""Every page that is drawn from the admin API: readable for everybody, light and dark, on a desktop
and a phone, with nothing in the browser's console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from tests.dashboard.accessible import AXE, fits_across, ours, violations
from tests.dashboard.running import IN_CHROMIUM, PATIENCE_MS, watched_server
from tests.e2e.quire_server import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = IN_CHROMIUM

# By path, with a text that is there when the page is drawn.
PAGES = {
    "requests": "Longest phase",
    "requests?state=live": "In the last",
    "kv": "Shared prefixes",
    "usage": "Days start at midnight UTC",
    "load": "There has been no load run",
    "admin": "Settings",
    "request": "Phases",
}


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of the pages, by path."""
    log = tmp_path_factory.mktemp("dashboard") / "log"
    with watched_server(log, "simulated:h100-8b") as (server, client, url):
        for end in ("one", "two", "three"):
            body = {"model": "simulated:h100-8b", "prompt": "Hello " * 200 + end, "max_tokens": 5}
            assert server.post("/v1/completions", body)[0] == 200
        ended = until(lambda: client.requests(state="ended").requests, 60, "records")
        pages = {path: f"{url}/{path}" for path in PAGES}
        yield {**pages, "request": f"{url}/request?id={ended[0].request_id}"}


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_readable_in_every_look(
    dashboard: dict[str, str], browser: Browser, path: str
) -> None:
    said: list[str] = []
    wrong: dict[str, list[str]] = {}
    for look, width in (("light", 1280), ("light", 400), ("dark", 1920)):
        page = browser.new_page(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if look == "dark" else "light",
        )
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: said.extend(ours(message)))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(dashboard[path])
        page.get_by_text(PAGES[path]).first.wait_for()
        page.wait_for_timeout(500)  # drawn, and not in the middle of it
        until(lambda page=page: fits_across(page), 10, "a page that fits")  # type: ignore[misc]
        if found := violations(page):
            wrong[f"{look}, {width}"] = found
        page.close()
    assert wrong == {}
    assert said == []
    if not AXE.exists():
        pytest.skip("rules of accessibility: needs axe-core (make test installs it)")


@pytest.mark.parametrize("look", ["light", "dark"])
def test_a_link_of_the_navigation_has_a_ring_when_it_has_the_focus(
    dashboard: dict[str, str], browser: Browser, look: Literal["light", "dark"]
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=look)
    page.set_default_timeout(PATIENCE_MS)
    page.goto(dashboard["load"])
    link = page.get_by_role("link", name="Requests")
    link.wait_for()

    def ring() -> str:
        return str(link.evaluate("link => getComputedStyle(link).boxShadow"))

    assert ring() == "none"
    page.get_by_role("link", name="Live").focus()
    page.keyboard.press("Tab")
    assert link.evaluate("link => link === document.activeElement")
    until(lambda: "3.2px" in ring(), 10, "the ring that buttons have")
    page.close()


# What is written on canvases, as tables are.
_WRITTEN = """
window.written = new Set();
const { fillText } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
    window.written.add(String(text));
    return fillText.call(this, text, ...where);
};
"""


def test_numbers_have_one_notation_wherever_the_browser_is_from(
    browser: Browser, tmp_path: Path
) -> None:
    with watched_server(tmp_path / "log", "simulated:fast") as (server, _, dashboard):
        body = {"prompt": [5] * 2_000, "max_tokens": 1_200, "ignore_eos": True}
        assert server.post("/v1/completions", body)[0] == 200
        page = browser.new_page(locale="de-DE")
        page.set_default_timeout(PATIENCE_MS)
        page.add_init_script(_WRITTEN)
        written: dict[str, list[str]] = {}
        for path in ("requests", "usage"):
            page.goto(f"{dashboard}/{path}")
            page.get_by_test_id("stDataFrame").wait_for()
            page.wait_for_function("[...window.written].some((text) => /^1.200$/.test(text))")
            written[path] = page.evaluate(
                "[...window.written].filter((one) => /^[12].[02]00\\b/.test(one))"
            )
        page.close()
    assert written == {"requests": ["2,000 (0)", "1,200"], "usage": ["2,000", "1,200"]}


def test_live_and_usage_come_back_as_they_were_left(
    dashboard: dict[str, str], browser: Browser
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(dashboard["usage"])
    page.get_by_text(PAGES["usage"]).first.wait_for()
    page.get_by_text("7 days", exact=True).click()
    page.wait_for_url("**/usage?days=7+days")
    page.get_by_role("link", name="Live").click()
    page.locator(".tile").first.wait_for()
    page.get_by_text("15 min", exact=True).click()
    page.wait_for_url("**/live?minutes=15*")
    page.get_by_role("link", name="Load").click()
    page.get_by_text(PAGES["load"]).first.wait_for()
    page.go_back()
    page.wait_for_url("**/live?minutes=15*")
    chosen = page.get_by_role("radio", name="15 min", exact=True)
    until(chosen.is_checked, 30, "the range that was chosen")
    for name, left in (("Usage", "**/usage?days=7+days"), ("Live", "**/live?minutes=15*")):
        page.get_by_role("link", name=name).click()
        page.wait_for_url(left)
    page.close()
