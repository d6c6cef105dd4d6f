"""A chat as a person sees it: it follows its end, survives a reload, and shows true figures."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from dashboard.words import duration, number
from tests.dashboard.running import IN_CHROMIUM, PATIENCE_MS, dashboard_of
from tests.dashboard.test_with_quire import is_inverse
from tests.e2e.quire_server import QuireServer, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page, WebSocketRoute

playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")

pytestmark = IN_CHROMIUM


@pytest.fixture(scope="module")
def pids() -> list[int]:
    return []


@pytest.fixture(scope="module")
def dashboard(
    quire: QuireServer, tmp_path_factory: pytest.TempPathFactory, pids: list[int]
) -> Iterator[str]:
    with dashboard_of(quire.url, tmp_path_factory.mktemp("dashboard") / "log", pids) as url:
        yield url


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE_MS)
    yield context
    context.close()


def open_playground(context: BrowserContext, dashboard: str, tokens: int) -> Page:
    page = context.new_page()
    page.goto(f"{dashboard}/playground")
    page.get_by_role("slider", name="Temperature").press("Home")
    most = page.get_by_role("spinbutton", name="Max tokens")
    most.fill(str(tokens))
    most.press("Enter")
    return page


def ask(page: Page, question: str) -> None:
    field = page.get_by_test_id("stChatInputTextArea")
    field.fill(question)
    field.press("Enter")


def ask_and_wait(page: Page, question: str) -> Locator:
    """The text below the answer."""
    before = page.get_by_text("finish:").count()
    ask(page, question)
    page.get_by_text("finish:").nth(before).wait_for()
    page.get_by_role("button", name="Regenerate").wait_for()
    return page.get_by_text("finish:").nth(before)


def scrolled(page: Page) -> tuple[float, float, float]:
    """How much lies above, height of the window, height of all. A reversed box counts from its
    end."""
    top, height, whole = page.locator(".st-key-chat").evaluate(
        "c => [c.scrollHeight - c.clientHeight + c.scrollTop, c.clientHeight, c.scrollHeight]"
    )
    return top, height, whole


def at_the_end(page: Page) -> bool:
    top, height, whole = scrolled(page)
    return whole - height - top < 10


def test_four_answers_are_each_in_view_when_they_come(
    context: BrowserContext, dashboard: str
) -> None:
    page = open_playground(context, dashboard, 300)
    for question in ("One", "Two", "Three", "Four"):
        below = ask_and_wait(page, question)
        playwright.expect(below).to_be_in_viewport()
        playwright.expect(page.get_by_role("button", name="Regenerate")).to_be_in_viewport()
    top, height, whole = scrolled(page)
    assert whole > height
    assert top > 0


def test_one_who_has_scrolled_up_is_not_pulled_down(
    context: BrowserContext, dashboard: str, quire: QuireServer
) -> None:
    page = open_playground(context, dashboard, 30_000)
    ask(page, "Hello")
    until(lambda: scrolled_far(page), 60, "the answer to be longer than the window")
    until(lambda: at_the_end(page), 60, "the page to follow it")
    page.locator(".st-key-chat").hover()

    def turned() -> bool:
        """As a hand turns a wheel: again, while the page's own smooth movement wins."""
        page.mouse.wheel(0, -200)
        page.wait_for_timeout(300)
        top, _, whole = scrolled(page)
        until(lambda: scrolled(page)[2] > whole, 60, "more text")
        return scrolled(page)[0] == top

    until(turned, 60, "the wheel to be felt")
    top, _, whole = scrolled(page)
    until(lambda: scrolled(page)[2] > whole + 200, 60, "more text to come")
    assert scrolled(page)[0] == top
    page.get_by_role("button", name="Stop").click()
    until(lambda: quire.total("quire_sequences_running") == 0, 30, "the abort")


def scrolled_far(page: Page) -> bool:
    _, height, whole = scrolled(page)
    return whole > height + 300


def test_a_chat_survives_a_reload_with_its_settings(
    context: BrowserContext, dashboard: str
) -> None:
    page = open_playground(context, dashboard, 7)
    ask_and_wait(page, "Alpha")
    ask_and_wait(page, "Beta")
    secret = page.get_by_label("API key", exact=True)
    secret.fill("sk-never-kept")
    secret.press("Enter")
    page.wait_for_load_state("networkidle")
    for path in (None, "/live", None):
        if path:
            page.get_by_role("link", name="Live").click()
            page.wait_for_url("**/live?chat=*")
            page.reload()
            page.get_by_role("link", name="Playground").click()
        else:
            page.reload()
        page.get_by_text("Beta", exact=True).first.wait_for()
        assert page.get_by_text("Alpha", exact=True).count() == 1
        most = page.get_by_role("spinbutton", name="Max tokens")
        playwright.expect(most).to_have_value("7", timeout=10_000)
        assert page.get_by_label("API key", exact=True).input_value() == ""
        assert "sk-never-kept" not in page.url
    ask_and_wait(page, "Gamma")


def test_an_answer_that_a_reload_cuts_is_stopped_and_kept(
    context: BrowserContext, dashboard: str, quire: QuireServer
) -> None:
    page = open_playground(context, dashboard, 30_000)
    ask(page, "Hello")
    page.get_by_text("HelloHelloHello").first.wait_for()
    page.reload()
    page.get_by_text("stopped early").first.wait_for()
    page.get_by_text("HelloHelloHello").first.wait_for()
    until(lambda: quire.total("quire_sequences_running") == 0, 30, "the abort")


def test_an_answer_continues_when_the_page_has_lost_its_connection(
    context: BrowserContext, dashboard: str, quire: QuireServer
) -> None:
    connections: list[tuple[WebSocketRoute, WebSocketRoute]] = []
    context.route_web_socket(
        "**/_stcore/stream", lambda page: connections.append((page, page.connect_to_server()))
    )
    page = open_playground(context, dashboard, 30_000)
    ask(page, "Hello")
    page.get_by_text("HelloHelloHello").first.wait_for()
    before = len(connections)
    for end in connections[-1]:
        end.close(code=4000, reason="lost")
    until(lambda: page.title() and len(connections) > before, 30, "a new connection")
    answer = page.get_by_test_id("stChatMessageContent").nth(1)
    length = len(answer.inner_text())
    until(lambda: len(answer.inner_text()) > length, 60, "the answer to grow")
    assert quire.total("quire_sequences_running") == 1
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("stopped early").first.wait_for()
    until(lambda: quire.total("quire_sequences_running") == 0, 30, "the abort")


def test_tabs_do_not_mix_and_other_browsers_see_nothing(
    context: BrowserContext, browser: Browser, dashboard: str
) -> None:
    first = open_playground(context, dashboard, 4)
    ask_and_wait(first, "Alpha")
    first.wait_for_url("**/playground?chat=*")
    fresh = open_playground(context, dashboard, 4)
    ask_and_wait(fresh, "Omega")
    assert fresh.get_by_text("Alpha", exact=True).count() == 0
    copy = context.new_page()
    copy.goto(first.url)
    copy.get_by_text("Alpha", exact=True).first.wait_for()
    ask_and_wait(copy, "Beta")
    assert copy.url != first.url
    first.reload()
    first.get_by_text("Alpha", exact=True).first.wait_for()
    assert first.get_by_text("Beta", exact=True).count() == 0
    elsewhere = browser.new_context()
    stranger = elsewhere.new_page()
    stranger.goto(first.url)
    stranger.get_by_test_id("stChatInputTextArea").wait_for(timeout=PATIENCE_MS)
    assert stranger.get_by_text("Alpha", exact=True).count() == 0
    assert "chat=" not in stranger.url
    elsewhere.close()


@contextmanager
def in_bursts(pid: int) -> Iterator[None]:
    """Lets a process run a quarter of the time."""
    over = threading.Event()

    def starve() -> None:
        while not over.wait(0.05):
            os.kill(pid, signal.SIGSTOP)
            over.wait(0.15)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=starve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        os.kill(pid, signal.SIGCONT)


def test_figures_are_the_servers_to_the_digit_while_the_dashboard_is_starved(
    context: BrowserContext, dashboard: str, quire: QuireServer, pids: list[int]
) -> None:
    page = open_playground(context, dashboard, 100)
    for turn in range(3):
        before = len(chat_lines(quire))
        with in_bursts(pids[0]):
            shown = ask_and_wait(page, f"Question {turn}").inner_text()
        line = until(lambda: chat_lines(quire)[before:], 30, "the request's log line")[0]  # noqa: B023
        assert f"first token {duration(line['ttft_ms'] / 1000)} " in shown
        assert f"queue {duration(line['queue_ms'] / 1000)} " in shown
        assert f"{line['prompt_tokens']} prompt tokens ({line['cached_tokens']} cached)" in shown
        # Drawn for the last time: a popover that is open while the page is drawn anew closes.
        playwright.expect(page.get_by_test_id("stChatInputTextArea")).to_be_enabled()
        page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
        timings = page.get_by_role("button", name="Timings")
        playwright.expect(timings).to_have_count(1)  # those of the answer before are gone
        timings.click()
        told = page.get_by_test_id("stPopoverBody").get_by_test_id("stCode").inner_text()
        figures = json.loads(told)
        assert figures["time_to_first_token_ms"] == line["ttft_ms"]
        assert figures["mean_itl_ms"] == line["itl_mean_ms"]
        assert figures["request_id"] == line["request_id"]
        assert figures["trace_id"] == line["trace_id"]
        assert f"{number(figures['output_tokens_per_second'])} tok/s" in shown
        assert is_inverse(figures["output_tokens_per_second"], line["itl_mean_ms"])
        page.keyboard.press("Escape")


def chat_lines(quire: QuireServer) -> list[dict[str, Any]]:
    return [line for line in quire.log_lines() if line.get("route") == "chat_completions"]
