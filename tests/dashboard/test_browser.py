"""What a person sees and does, in a real browser, against a running Quire."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from observability import catalogue
from tests.dashboard.running import IN_CHROMIUM, PATIENCE_MS, dashboard_of
from tests.e2e.quire_server import QuireServer, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = IN_CHROMIUM


@pytest.fixture(scope="module")
def dashboard(quire: QuireServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with dashboard_of(quire.url, tmp_path_factory.mktemp("dashboard") / "log") as url:
        yield url


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_timeout(PATIENCE_MS)
    yield page
    page.close()


def tile(page: Page, label: str) -> Locator:
    return page.locator(".quire-tile").filter(has_text=label)


def ask_for_a_long_answer(page: Page, dashboard: str) -> None:
    """Returns when text has begun to come."""
    page.goto(f"{dashboard}/playground")
    page.get_by_role("slider", name="Temperature").press("Home")
    tokens = page.get_by_role("spinbutton", name="Max tokens")
    tokens.fill("30000")
    tokens.press("Enter")
    question = page.get_by_test_id("stChatInputTextArea")
    question.fill("Hello")
    question.press("Enter")
    page.get_by_text("HelloHelloHello").first.wait_for()


def assert_answer_grows(page: Page) -> None:
    answer = page.get_by_test_id("stChatMessage").last
    length = len(answer.inner_text())
    until(lambda: len(answer.inner_text()) > length + 100, 60, "the answer to grow on")


def gone(quire: QuireServer) -> float:
    return quire.total(catalogue.REQUESTS.name, outcome="client_gone")


def running(quire: QuireServer) -> float:
    return quire.total(catalogue.SEQUENCES_RUNNING.name)


def test_stop_ends_the_answer_here_and_in_the_engine(
    page: Page, dashboard: str, quire: QuireServer
) -> None:
    before = gone(quire)
    ask_for_a_long_answer(page, dashboard)
    assert running(quire) == 1
    page.get_by_role("button", name="Stop").click()
    until(lambda: running(quire) == 0, 30, "the abort")
    until(lambda: gone(quire) == before + 1, 30, "the outcome")
    page.get_by_text("stopped early").first.wait_for()
    page.get_by_text("HelloHelloHello").first.wait_for()
    assert page.get_by_role("button", name="Stop").count() == 0


def test_moving_a_slider_does_not_lose_the_answer(
    page: Page, dashboard: str, quire: QuireServer
) -> None:
    before = gone(quire)
    ask_for_a_long_answer(page, dashboard)
    page.get_by_text("More", exact=True).click()
    page.get_by_role("slider", name="Top p").press("ArrowLeft")
    page.get_by_text("0.94", exact=True).first.wait_for()
    assert_answer_grows(page)
    assert running(quire) == 1
    assert gone(quire) == before
    page.get_by_role("button", name="Stop").click()
    until(lambda: running(quire) == 0, 30, "the abort")


def test_closing_the_page_aborts_its_answer(
    browser: Browser, dashboard: str, quire: QuireServer
) -> None:
    before = gone(quire)
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    ask_for_a_long_answer(page, dashboard)
    page.close()
    until(lambda: running(quire) == 0, 30, "the abort")
    until(lambda: gone(quire) == before + 1, 30, "the outcome")


def test_the_live_page_shows_an_answer_under_way_and_one_finds_it_again(
    page: Page, dashboard: str, quire: QuireServer
) -> None:
    ask_for_a_long_answer(page, dashboard)
    page.get_by_role("link", name="Live").click()
    tile(page, "Running").get_by_text(re.compile("^1 / ")).wait_for()
    tile(page, "Between tokens").get_by_text("≈").first.wait_for()
    assert not tile(page, "Generated").inner_text().startswith("Generated\n0")
    page.get_by_role("link", name="Playground").click()
    assert_answer_grows(page)
    assert page.get_by_role("spinbutton", name="Max tokens").input_value() == "30000"
    page.get_by_role("button", name="Stop").click()
    until(lambda: running(quire) == 0, 30, "the abort")


def test_nothing_is_fetched_from_elsewhere(page: Page, dashboard: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in ("", "/playground"):
        page.goto(dashboard + path)
        page.get_by_role("link", name="Playground").wait_for()
        page.wait_for_load_state("networkidle")
    foreign = [url for url in asked if not url.startswith((dashboard, "data:", "blob:"))]
    assert foreign == []


# Shown as an answer is shown. Each names an image in a way that some parser takes for one.
_IMAGES = "\n\n".join(
    f.format(f"http://127.0.0.1:9/{number}.png")
    for number, f in enumerate(
        (
            "![x]({})",
            r"\`![x]({})\`",
            "![x][r]\n\n[r]: {}",
            "<img src='{}'>",
            ":red[![x]({})]",
            "$$\n```\n$$\n![x]({})",
            ":::x\n```\n:::\n![x]({})\n```",
            "    ```\n\n![x]({})\n\n    ```",
            "| a |\n|---|\n| ![x]({}) |",
            "[^1]\n\n[^1]: ![x]({})",
            "![x]({}",
        )
    )
)


def test_no_image_that_a_text_names_is_fetched(
    page: Page, dashboard: str, quire: QuireServer
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{dashboard}/playground")
    question = page.get_by_test_id("stChatInputTextArea")
    question.fill(f"{_IMAGES}\n\nThe end of it.")
    question.press("Enter")
    page.get_by_text("The end of it.").first.wait_for()
    page.get_by_text("finish:").first.wait_for()  # drawn whole, as ended turns are
    assert page.get_by_test_id("stChatMessage").locator("img[src*='127.0.0.1:9/']").count() == 0
    assert [url for url in asked if "127.0.0.1:9/" in url] == []
