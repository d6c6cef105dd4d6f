"""What an operator asks at night, answered from the Live page by clicks alone, in Chromium: why a
prefix missed, and which key used the most tokens. (tests/dashboard/views/test_request.py has the
slowest request.) docs/dashboard.md has the same paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dashboard.admin_client import AdminClient
from observability.outcomes import PREFIX_MISS_REASONS
from tests.dashboard.running import IN_CHROMIUM, watched_server
from tests.e2e.quire_server import QuireServer, until
from tests.service.tiny_model import write_tiny_model

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")

pytestmark = [*IN_CHROMIUM, pytest.mark.one_process]

BLOCK = 16
BLOCKS = 64
FIRST = list(range(1, 1 + 3 * BLOCK))
KEYS = {"alice": "sk-a", "bob": "sk-b"}


class Watched:
    """A server, and a dashboard that shows it."""

    def __init__(self, server: QuireServer, client: AdminClient, dashboard: str) -> None:
        self.server = server
        self.client = client
        self.dashboard = dashboard
        self._asked = 0

    def ask(self, prompt: list[int], key: str = "alice", **fields: object) -> None:
        """Return when the request has ended and its record is there."""
        body = {"prompt": prompt, "max_tokens": 1, **fields}
        authorization = {"Authorization": f"Bearer {KEYS[key]}"}
        status, reply = self.server.post("/v1/completions", body, authorization)
        assert status == 200, reply
        self._asked += 1
        until(lambda: self._ended() == self._asked, 60, "the record")

    def _ended(self) -> int:
        return len(self.client.requests(state="ended", limit="1000").requests)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(params=["caching", "no caching"])
def watched(request: pytest.FixtureRequest, model: Path, tmp_path: Path) -> Iterator[Watched]:
    options = [part for name, key in KEYS.items() for part in ("--api-key", f"{name}={key}")]
    options += ["--num-kv-blocks", str(BLOCKS), "--load-format", "dummy"]
    if request.param == "no caching":
        options.append("--no-enable-prefix-caching")
    with watched_server(tmp_path / "log", str(model), *options) as watched:
        yield Watched(*watched)


def first_row(page: Page) -> None:
    """The grid is drawn on a canvas, which has nothing to wait for: click until it leads
    somewhere."""
    # The request's page, which has several, may be drawn before the address changes.
    table = page.get_by_test_id("stDataFrame").first
    table.wait_for()

    def opened() -> bool:
        if "/request?" not in page.url:
            with suppress(playwright.TimeoutError):
                table.click(position={"x": 150, "y": 52}, timeout=1000)
        page.wait_for_timeout(500)
        return "/request?" in page.url

    until(opened, 60, "the request's page")


def evict(watched: Watched) -> None:
    """Fill the cache with other prompts, then ask again."""
    long = [token % 200 + 1 for token in range(15 * BLOCK)]
    for number in range(BLOCKS // 15 + 2):
        watched.ask(long, cache_salt=f"{number}")
    watched.ask(FIRST)


def diverge(watched: Watched) -> None:
    watched.ask([*FIRST[:BLOCK], *(token + 1 for token in FIRST[BLOCK:])])


# In an order in which each makes its reason: what to do, and the reason of the request that it ends
# with.
STORY: list[tuple[str, Callable[[Watched], None]]] = [
    ("first_seen", lambda watched: watched.ask(FIRST)),
    ("short", lambda watched: watched.ask(FIRST)),
    ("diverged", diverge),
    ("salt", lambda watched: watched.ask(FIRST, cache_salt="other")),
    ("whole_prompt", lambda watched: watched.ask(FIRST, prompt_logprobs=0)),
    ("evicted", evict),
]


@pytest.mark.parametrize("watched", ["caching"], indirect=True)
def test_two_clicks_lead_to_why_a_prefix_missed(watched: Watched, page: Page) -> None:
    assert {reason for reason, _ in STORY} | {"off", "state"} == set(PREFIX_MISS_REASONS)
    for reason, happens in STORY:
        happens(watched)
        assert why_the_last_missed(watched, page).startswith(f"Why not more ({reason})"), reason


@pytest.mark.parametrize("watched", ["no caching"], indirect=True)
def test_two_clicks_say_that_caching_is_off(watched: Watched, page: Page) -> None:
    watched.ask(FIRST)
    assert why_the_last_missed(watched, page).startswith("Why not more (off)")


def why_the_last_missed(watched: Watched, page: Page) -> str:
    page.goto(f"{watched.dashboard}/live")
    page.get_by_role("link", name="Requests").click()
    first_row(page)
    told = page.get_by_text("prompt tokens were cached. ")
    told.wait_for()
    return (told.text_content() or "").partition("were cached. ")[2]


@pytest.mark.parametrize("watched", ["caching"], indirect=True)
def test_one_click_leads_to_the_key_that_used_most_tokens(watched: Watched, page: Page) -> None:
    watched.ask(FIRST, "alice")
    watched.ask(FIRST * 4, "bob")
    page.goto(f"{watched.dashboard}/live")
    page.get_by_role("link", name="Usage").click()
    table = page.get_by_test_id("stDataFrame")
    table.wait_for()
    until(lambda: cells(table)[:2] == ["bob", "1"], 60, "bob in the first row")
    page.get_by_test_id("data-grid-canvas").focus()
    page.locator("td[aria-selected=true]").wait_for(state="attached")
    page.keyboard.press("Enter")
    page.wait_for_url("**/requests?*key=bob*")


def cells(table: Locator) -> list[str]:
    """What a screen reader finds in the grid, row by row."""
    return table.locator("td").all_text_contents()
