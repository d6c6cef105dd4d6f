"""What a person sees and does, in a real browser, against a running Quire."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


@contextmanager
def listener() -> Iterator[tuple[str, list[str]]]:
    """The address of a server that a text may name, and the paths that were fetched from it."""
    fetched: list[str] = []

    class Noting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fetched.append(self.path)
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Noting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", fetched
        server.shutdown()


# Shown as an answer is shown. Each has an address that some renderer would fetch as it draws.
_FENCES = (
    '```mermaid\nflowchart TD\n  A@{{ img: "{0}/shape", label: "one", w: 60, h: 60 }}\n```',
    '~~~Mermaid title\nflowchart TD\n  A@{{ img: "{0}/tilde", label: "two" }}\n~~~',
    "- item\n\n  ````MERMAID x\n  classDiagram\n  class A\n  style A fill:url({0}/fill)\n  ````",
    '> ```mer&#109;aid\n> flowchart TD\n>  A@{{ img: "{0}/reference", label: "x" }}\n> ```',
    '```-language-mermaid\nflowchart TD\n  A@{{ img: "{0}/within", label: "x" }}\n```',
    '[^1]\n\n[^1]: ```mermaid\n    flowchart TD\n      A@{{ img: "{0}/note", label: "x" }}\n',
    '1. ```mermaid\n   flowchart TD\n    A["`![x]({0}/label)`"]\n   ```',
    "```mermaid\nflowchart TD\n  A --> \n ((( broken\n```",
)
_ELEMENTS = (
    r"$\includegraphics{{{0}/graphics}}$ $\href{{{0}/h}}{{x}}$",
    r"$\htmlStyle{{background:url({0}/s)}}{{x}}$",
    "```math\n\\includegraphics{{{0}/math}}\n```",
    ":image[{0}/directive] :img[x]{{src={0}/src}} :streamlit: :material/{0}: :emoji:",
    ':::video{{src="{0}/video"}}\n:::\n\n::img{{src="{0}/leaf" style="background:url({0}/style)"}}',
    ':color[x]{{foreground="red;background:url({0}/color)" background="url({0}/background)"}}',
    "<video src='{0}/v' poster='{0}/p'></video><style>@import '{0}/css'</style>",
    "<svg><image href='{0}/svg'/></svg><iframe src='{0}/frame'></iframe>",
    "<link rel=preload as=image href={0}/l><object data='{0}/object'></object>",
    '```vega-lite\n{{"data": {{"url": "{0}/vega"}}}}\n```\n\n```html\n<img src=\'{0}/html\'>\n```',
    '```svg\n<image href="{0}/svg2"/>\n```\n\n```dot\ndigraph {{ a [image="{0}/dot"] }}\n```',
    "[![x]({0}/linked)](http://x) ![x]({0}/plain) ![][r]\n\n[r]: {0}/defined",
    "| a |\n|---|\n| <img src={0}/cell> |",
)


@pytest.mark.parametrize("texts", [_FENCES, _ELEMENTS], ids=["diagrams", "elements"])
def test_nothing_that_a_text_names_is_drawn_or_fetched(
    page: Page, dashboard: str, texts: tuple[str, ...]
) -> None:
    with listener() as (address, fetched):
        page.goto(f"{dashboard}/playground")
        question = page.get_by_test_id("stChatInputTextArea")
        question.fill("\n\n".join((*texts, "The end of it.")).format(address))
        question.press("Enter")
        page.get_by_text("finish:").first.wait_for()  # drawn whole, as ended turns are
        page.get_by_test_id("stSkeleton").first.wait_for(state="detached")
        page.wait_for_load_state("networkidle")
        assert page.get_by_test_id("stMermaidChart").count() == 0
        shown = page.get_by_test_id("stChatMessage").first
        if texts is _FENCES:
            shown.get_by_text("((( broken").wait_for()
            assert shown.get_by_test_id("stCode").count() == len(_FENCES)
        assert fetched == []


# Put into a page as if the dashboard had overlooked it.
_OVERLOOKED = """(address) => {
    window.refused = [];
    document.addEventListener("securitypolicyviolation", (event) => {
        window.refused.push(event.effectiveDirective);
    });
    const box = document.createElement("div");
    box.innerHTML = `<img src="${address}/img"><video src="${address}/video"></video>
        <iframe src="${address}/iframe"></iframe><object data="${address}/object"></object>
        <style>@import "${address}/css";
            @font-face { font-family: other; src: url(${address}/font); }</style>
        <p style="font-family: other; background: url(${address}/background)">x</p>
        <svg><image href="${address}/image"/></svg>`;
    document.body.append(box);
}"""


def test_the_browser_fetches_nothing_from_elsewhere_if_a_page_says_so(
    page: Page, dashboard: str
) -> None:
    directives = ["font-src", "frame-src", *["img-src"] * 3, "media-src", "object-src"]
    with listener() as (address, fetched):
        page.goto(f"{dashboard}/playground")
        page.get_by_test_id("stChatInputTextArea").wait_for()
        page.evaluate(_OVERLOOKED, address)
        page.wait_for_function("window.refused.length >= 8")
        assert sorted(page.evaluate("window.refused")) == [*directives, "style-src-elem"]
        assert fetched == []
