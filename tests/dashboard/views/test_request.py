"""From the Live page to the slowest request and why it was slow, by clicks alone, in Chromium."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dashboard.views.request import event_rows, phase_words, step_rows
from observability.admin_api import EventKind, KeptRequest, Neighbour, Prefill, RequestEvent
from tests.dashboard.running import in_chromium, watched_server
from tests.e2e.quire_server import until

if TYPE_CHECKING:
    from playwright.sync_api import Page


def test_events_and_steps_are_said_with_their_units() -> None:
    request = KeptRequest(
        request_id="r",
        received=0.0,
        route="x",
        events=(
            RequestEvent(EventKind.OUTPUT, 0.5, 4),
            RequestEvent(EventKind.GAP, 2.0, 0.9),
            RequestEvent(EventKind.STALLED, 3.0, 0.2),
        ),
        neighbours=(Neighbour(2.0, 0.8, 900, 3, (Prefill("req_a", 896),)),),
    )
    events = [row["what"] for row in event_rows(request)]
    assert events[0] == "token 4"
    assert events[1].startswith("900 ms: a step of 800 ms")
    assert events[2] == "200 ms until the client read"
    assert step_rows(request)[0]["prompts"] == "896 of req_a"


def test_time_in_no_phase_is_said_with_the_phases() -> None:
    request = KeptRequest(
        request_id="r",
        received=0.0,
        route="x",
        phases={"admit": 0.001, "receive": 0.002},
        other=0.023,
    )
    assert phase_words(request) == (
        "receive 2.00 ms · admit 1.00 ms · other 23.0 ms (hatched: in no phase)"
    )
    nothing = KeptRequest(request_id="r", received=0.0, route="x")
    assert phase_words(nothing) == "No phase was measured."


@in_chromium
def test_three_clicks_lead_from_live_to_why_the_slowest_was_slow(
    page: Page, tmp_path: Path
) -> None:
    with watched_server(tmp_path / "log", "simulated:h100-8b") as (server, client, dashboard):
        # The slowest is neither the newest nor the oldest.
        for tokens in (5, 300, 6):
            body = {"model": "simulated:h100-8b", "prompt": "Hello " * 200, "max_tokens": tokens}
            assert server.post("/v1/completions", {**body, "ignore_eos": True})[0] == 200
        # An answer may be here before its request has ended.
        until(lambda: len(client.requests(state="ended").requests) == 3, 60, "all to end")
        slowest = client.requests(state="ended", sort="-total").requests[0]
        told = f"{slowest.output_tokens} output tokens"
        page.goto(f"{dashboard}/live")
        page.get_by_role("link", name="Slowest of the last 5 minutes").click()
        # The first: the click may already have opened the request's page, which has several tables.
        table = page.get_by_test_id("stDataFrame").first
        table.wait_for()

        from playwright.sync_api import TimeoutError as PlaywrightTimeout

        def opened() -> bool:
            """The grid is drawn on a canvas, which has nothing to wait for: click until it leads
            somewhere."""
            if "/request?" not in page.url:
                with suppress(PlaywrightTimeout):
                    table.click(position={"x": 150, "y": 52}, timeout=1000)
            page.wait_for_timeout(500)
            return "/request?" in page.url

        until(opened, 60, "the request's page")
        page.get_by_text("It took").or_(page.get_by_text("Its answer took")).first.wait_for()
        page.get_by_text("prompt tokens were cached").first.wait_for()
        page.get_by_text(told).first.wait_for()
        page.reload()
        page.get_by_text(told).first.wait_for()
