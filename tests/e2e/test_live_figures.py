"""The figures of the Live page, as Chromium shows them, are those that PromQL computes from a real
Prometheus's samples and those of the requests' records, digit for digit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from dashboard.admin_client import AdminClient
from dashboard.words import count, duration, number
from tests.dashboard.running import IN_CHROMIUM, PATIENCE_MS, chromium, dashboard_of
from tests.e2e.prometheus_server import prometheus_scraping, query
from tests.e2e.quire_server import QuireServer, free_port, until

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.one_process, *IN_CHROMIUM, pytest.mark.timeout(300)]

MODEL = "simulated:step=5ms"
SLOTS = 2
MINUTE = 60
# Whole tokens and half requests per second over a minute: what is shown does not hang on the
# milliseconds by which a minute of the page is longer.
REQUESTS, TOKENS, PROMPT, SHARED = 30, 100, 120, 96


class Watched(NamedTuple):
    server: QuireServer
    client: AdminClient
    prometheus: str
    page: Page

    def tiles(self) -> dict[str, str]:
        """What each tile shows, with its note and without spaces, by its label."""
        found = {}
        for tile in self.page.locator(".tile").all_inner_texts():
            label, *shown = (line.strip() for line in tile.split("\n") if line.strip())
            found[label] = "".join(shown).replace(" ", "")
        return found

    def shows(self, expected: dict[str, str]) -> bool:
        """True if the tiles begin so."""
        tiles = self.tiles()
        return all(
            tiles[label].startswith(value.replace(" ", "")) for label, value in expected.items()
        )

    def metric(self, expression: str) -> float:
        value = query(self.prometheus, expression)
        assert value is not None, expression
        return value


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    from playwright.sync_api import sync_playwright

    port = free_port()
    arguments = (*("--admin-port", str(port)), *("--max-num-seqs", str(SLOTS)))
    admin = f"http://127.0.0.1:{port}"
    with (
        QuireServer(MODEL, *arguments) as server,
        prometheus_scraping(server.port, tmp_path) as prometheus,
        dashboard_of(server.url, tmp_path / "log", admin=admin) as dashboard,
        sync_playwright() as driver,
    ):
        browser = chromium(driver)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE_MS)
        page.goto(dashboard)
        page.locator(".tile").first.wait_for()
        yield Watched(server, AdminClient(admin), prometheus, page)
        browser.close()


def complete(server: QuireServer, number: int, tokens: int) -> None:
    prompt = [50] * SHARED + [100 + number] * (PROMPT - SHARED)
    body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
    status, reply = server.post("/v1/completions", body)
    assert status == 200, reply


@contextmanager
def at_once(requests: int, run: Callable[[int], None]) -> Iterator[None]:
    """Begin requests, and wait for their ends after the body."""
    with ThreadPoolExecutor(requests) as threads:
        running = [threads.submit(run, number) for number in range(requests)]
        yield
        for one in running:
            one.result()


def p95(values: list[Any]) -> str:
    return duration(float(np.percentile(values, 95, method="inverted_cdf")))


def test_the_live_page_shows_what_promql_and_the_records_say(watched: Watched) -> None:
    server, client, metric = watched.server, watched.client, watched.metric
    # Then a minute ago is a time at which the server was watched.
    until(lambda: client.overview()[0].uptime > MINUTE - 5, MINUTE, "most of a minute to pass")
    totals = {
        "out": "sum(quire_generated_tokens_total)",
        "computed": 'sum(quire_prompt_tokens_total{source="computed"})',
        "cached": 'sum(quire_prompt_tokens_total{source="cached"})',
        "received": "sum(quire_requests_received_total)",
    }
    before = {name: metric(total) for name, total in totals.items()}
    with at_once(REQUESTS, lambda number: complete(server, number, TOKENS)):
        pass
    made = REQUESTS * TOKENS
    until(lambda: metric(totals["out"]) - before["out"] == made, 15, "a scrape after the last one")
    moved = {name: metric(total) - before[name] for name, total in totals.items()}
    assert moved["computed"] + moved["cached"] == REQUESTS * PROMPT
    assert moved["received"] == REQUESTS
    records = client.requests(state="ended", limit=str(REQUESTS + 1)).requests
    assert len(records) == REQUESTS
    per_second = {name: number(value / MINUTE) for name, value in moved.items()}
    prompts = moved["computed"] + moved["cached"]
    expected = {
        "Output, last minute": f"{per_second['out']} tok/s 0 % recomputed",
        "Input, last minute": f"{number(prompts / MINUTE)} tok/s "
        f"{number(moved['cached'] / prompts * 100)} % cached",
        "First token, p95": p95([one.ttft for one in records]),
        "Between tokens, p95": p95([one.itl_mean for one in records]),
        "Requests, last minute": f"{per_second['received']} /s 0 refused, 0 failed",
    }

    try:
        until(lambda: watched.shows(expected), 20, "the figures on the page")
    except TimeoutError:
        assert watched.tiles() == expected
    the_gauges_are_equal(watched)


def the_gauges_are_equal(watched: Watched) -> None:
    """While more requests run than there are slots."""

    def gauges() -> tuple[float, float]:
        running = watched.metric("sum(quire_sequences_running)")
        return running, watched.metric("sum(quire_sequences_waiting)")

    with at_once(SLOTS + 3, lambda number: complete(watched.server, number, 1500)):
        until(lambda: gauges() == (SLOTS, 3), 20, "a scrape in the midst of it")

        def shown() -> bool:
            running, waiting = gauges()
            return watched.shows(
                {"Running": f"{count(running)} / {SLOTS} KV", "Waiting": f"{count(waiting)} oldest"}
            )

        until(shown, 20, "the gauges on the page")
