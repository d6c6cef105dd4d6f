from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

from dashboard.admin_client import AdminClient
from dashboard.phase_bar import BAR_WIDTH
from dashboard.settings import ADMIN_VARIABLE, SERVERS_VARIABLE
from dashboard.views import requests
from dashboard.views.requests import nothing_matches, row_of
from observability.admin_api import KeptRequest
from tests.dashboard.running import dashboard_of, in_chromium, watched_server
from tests.dashboard.test_questions_in_browser import first_row
from tests.e2e.quire_server import QuireServer, free_port, until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

ROW = 35
TEAL = (13, 148, 136)


def test_a_row_says_what_took_longest() -> None:
    request = KeptRequest(
        request_id="req_1",
        received=0.0,
        route="responses",
        total=4.0,
        phases={"queue": 3.5, "decode": 0.5},
        prompt_tokens=1180,
        cached_tokens=1024,
        outcome="stop",
    )
    row = row_of(request, 8.0)
    assert (row["total"], row["longest phase"]) == ("4.00 s", "queue 3.50 s")
    assert row["prompt (cached)"] == "1,180 (1,024)"
    assert row["outcome"] == "stop"


def test_an_empty_list_says_what_may_find_one() -> None:
    query = {"state": "ended", "since": "5m", "key": "", "outcome": "", "route": "", "phase": ""}
    assert nothing_matches(query) == (
        "There was no request in the last 5 min. Choose a longer time."
    )
    assert nothing_matches({**query, "key": "bob", "phase": "queue"}) == (
        "No request of the last 5 min matches. Choose a longer time, or clear a filter "
        "(key, phase)."
    )
    live = {**query, "state": "live"}
    assert nothing_matches(live) == "No request is being served now."
    assert nothing_matches({**live, "key": "x"}).endswith("Clear a filter (key).")


def test_a_live_one_says_its_phase() -> None:
    request = KeptRequest(request_id="r", received=0.0, route="x", live=True, phase="decode")
    assert row_of(request, 0.0)["outcome"] == "decode"


def test_a_row_has_the_time_with_the_date() -> None:
    request = KeptRequest(request_id="r", received=0.0, route="x")
    assert row_of(request, 0.0)["time"].startswith(("1970-01-01 ", "1969-12-31 "))
    assert len(row_of(request, 0.0, "%H:%M:%S")["time"]) == 8


def _draw() -> None:
    from dashboard.views import requests

    requests.page()


def test_what_does_not_fit_is_on_the_next_page(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setattr(requests, "PAGE_ROWS", 2)
    with QuireServer("simulated:", "--admin-port", str(port)) as server:
        monkeypatch.setenv(SERVERS_VARIABLE, server.url)
        monkeypatch.setenv(ADMIN_VARIABLE, f"http://127.0.0.1:{port}")
        client = AdminClient(f"http://127.0.0.1:{port}")
        for _ in range(3):
            assert server.post("/v1/completions", {"prompt": "Hi", "max_tokens": 1})[0] == 200
        ended = until(lambda: ids if len(ids := ids_of(client)) == 3 else None, 60, "records")
        page = AppTest.from_function(_draw, default_timeout=60).run()
        assert list(page.dataframe[0].value["request"]) == ended[:2]
        assert page.caption[0].value == "1 to 2 of more"
        page.button[1].click().run()
        assert list(page.dataframe[0].value["request"]) == ended[2:]
        assert page.caption[0].value == "3 to 3"
        page.button[0].click().run()
        assert list(page.dataframe[0].value["request"]) == ended[:2]
        page.button[1].click().run()
        page.selectbox(key="sort").set_value("slowest first").run()
        assert page.caption[0].value == "1 to 2 of more"


def ids_of(client: AdminClient) -> list[str]:
    return [one.request_id for one in client.requests(sort="-received").requests]


@in_chromium
def test_bars_are_as_long_as_the_phases_and_a_header_opens_no_request(
    page: Page, tmp_path: Path
) -> None:
    with watched_server(tmp_path / "log", "simulated:h100-8b") as (server, client, dashboard):
        for tokens in (20, 200):
            body = {"model": "simulated:h100-8b", "prompt": "Hello", "max_tokens": tokens}
            assert server.post("/v1/completions", {**body, "ignore_eos": True})[0] == 200
        until(lambda: len(client.requests(state="ended").requests) == 2, 60, "both to end")
        shown = client.requests(state="ended", sort="-total").requests
        expected = [BAR_WIDTH * one.phases["decode"] / shown[0].total for one in shown]
        page.goto(f"{dashboard}/requests?sort=slowest+first")
        table = page.get_by_test_id("stDataFrame")
        table.wait_for()
        until(lambda: near(bars(table, 2), expected), 60, f"bars of {expected} pixels")
        # A click on a header would sort by the words and open the first request of that order.
        table.click(position={"x": 690, "y": ROW // 2})
        page.get_by_role("button", name="Clear selection").wait_for()
        assert "/requests?" in page.url


@in_chromium
def test_whoever_comes_back_finds_the_filters_as_they_were(page: Page, tmp_path: Path) -> None:
    with watched_server(tmp_path / "log", "simulated:h100-8b") as (server, client, dashboard):
        body = {"model": "simulated:h100-8b", "prompt": "Hello", "max_tokens": 2}
        assert server.post("/v1/completions", body)[0] == 200
        until(lambda: client.requests(state="ended").requests, 60, "the record")
        page.goto(f"{dashboard}/requests?since=hour")
        page.get_by_test_id("stDataFrame").wait_for()
        page.get_by_label("Outcome").fill("length")
        page.get_by_label("Outcome").press("Enter")
        page.wait_for_url("**outcome=length*")

        def back(leave: Callable[[], object], come_back: Callable[[], object]) -> None:
            leave()
            page.get_by_label("Outcome").wait_for(state="detached")
            come_back()
            outcome = page.get_by_label("Outcome")
            until(lambda: outcome.input_value() == "length", 60, "the filter of before")
            page.wait_for_url("**outcome=length*")
            assert "since=hour" in page.url

        back(lambda: first_row(page), page.go_back)
        usage = page.get_by_role("link", name="Usage")
        back(usage.click, page.get_by_role("link", name="Requests").click)
        # An address with filters has these and no others.
        page.goto(f"{dashboard}/requests?outcome=stop")
        page.get_by_text("No request of the last 5 min matches.").wait_for()


@in_chromium
def test_arrow_keys_move_through_the_rows_and_enter_opens_one(page: Page, tmp_path: Path) -> None:
    with watched_server(tmp_path / "log", "simulated:h100-8b") as (server, client, dashboard):
        for _ in range(3):
            assert server.post("/v1/completions", {"prompt": "Hi", "max_tokens": 2})[0] == 200
        until(lambda: len(ids_of(client)) == 3, 60, "records")
        newest, middle, oldest = ids_of(client)

        def led_to(row: int) -> bool:
            return bool(page.locator(f"td[aria-selected=true][id$='-{row}']").count())

        page.goto(f"{dashboard}/requests")
        table = page.get_by_test_id("data-grid-canvas")
        table.wait_for()
        table.focus()
        until(lambda: led_to(0), 60, "the first row to be the current one")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        until(lambda: led_to(2), 60, "the last row to be the current one")
        assert "/requests" in page.url
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/request?*{middle}*")
        page.get_by_role("region", name="Longest steps").wait_for()  # the last part of the page
        page.go_back()
        page.get_by_role("region", name="Longest steps").wait_for(state="detached")
        table.wait_for()
        table.focus()
        until(lambda: led_to(0), 60, "the first row to be the current one")
        # The box of another row than the current one.
        page.get_by_test_id("stDataFrame").click(position={"x": 16, "y": 3.5 * ROW})
        page.wait_for_url(f"**/request?*{oldest}*")
        assert newest not in page.url


def bars(table: Locator, rows: int) -> list[int]:
    """Return how many pixels of each row are a decode's."""
    picture = Image.open(io.BytesIO(table.screenshot())).convert("RGB")
    lines = [int((row + 1.5) * ROW) for row in range(rows)]
    return [
        sum(picture.getpixel((x, line)) == TEAL for x in range(picture.width)) for line in lines
    ]


def near(found: list[int], expected: list[float]) -> bool:
    return all(abs(one - other) < 3 for one, other in zip(found, expected, strict=True))


@in_chromium
def test_the_page_is_drawn_by_itself_once_the_admin_api_answers(page: Page, tmp_path: Path) -> None:
    port = free_port()
    server = QuireServer("simulated:", "--admin-port", str(port))  # not started yet
    with dashboard_of(server.url, tmp_path / "log", admin=f"http://127.0.0.1:{port}") as dashboard:
        page.goto(f"{dashboard}/requests")
        page.get_by_text("is not responding").wait_for()
        with server:
            page.get_by_text("There was no request").wait_for()
