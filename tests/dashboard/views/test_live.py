"""The Live page in Chromium against a running Quire: what it shows is what the server says."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.settings import ADMIN_VARIABLE, SERVERS_VARIABLE
from observability.admin_api import Overview
from tests.dashboard.accessible import ours, violations
from tests.dashboard.admin_server import admin_server
from tests.dashboard.running import IN_CHROMIUM, PATIENCE_MS, dashboard_of
from tests.e2e.quire_server import QuireServer, descendants, free_port, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

pytestmark = IN_CHROMIUM


@pytest.fixture(scope="module")
def admin_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(admin_port: int) -> Iterator[QuireServer]:
    with QuireServer("simulated:h100-8b", "--admin-port", str(admin_port)) as running:
        yield running


@pytest.fixture(scope="module")
def dashboard(
    server: QuireServer, admin_port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    log = tmp_path_factory.mktemp("dashboard") / "log"
    with dashboard_of(server.url, log, admin=f"http://127.0.0.1:{admin_port}") as url:
        yield url


def overview(admin_port: int) -> Overview:
    with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/admin/v1/overview") as reply:
        return msgspec.json.decode(reply.read(), type=Overview)


def opened(browser: Browser, address: str, said: list[str], scheme: str = "light") -> Page:
    page = browser.new_page(
        viewport={"width": 1280, "height": 800},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda message: said.extend(ours(message)))
    page.goto(address)
    page.locator(".tile").first.wait_for()
    return page


def tile(page: Page, label: str) -> str:
    return str(page.locator(".tile").filter(has_text=label).first.locator(".value").inner_text())


def ask(server: QuireServer) -> None:
    body = {"model": "simulated:h100-8b", "prompt": "Hello", "max_tokens": 50}
    assert server.post("/v1/completions", body)[0] == 200


def test_it_fits_the_window_and_is_readable_and_the_console_is_silent(
    server: QuireServer, dashboard: str, browser: Browser
) -> None:
    said: list[str] = []
    ask(server)
    for scheme in ("light", "dark"):
        page = opened(browser, f"{dashboard}/live", said, scheme)
        page.locator(".chart canvas").nth(7).wait_for()
        main = page.get_by_test_id("stMain")
        until(
            lambda main=main: main.evaluate(  # type: ignore[misc]
                "main => main.scrollHeight <= main.clientHeight "
                "&& main.scrollWidth <= main.clientWidth"
            ),
            30,
            "the page to fit",
        )
        assert violations(page) == []
        page.close()
    assert said == []


def test_figures_are_those_of_the_server(
    server: QuireServer, admin_port: int, dashboard: str, browser: Browser
) -> None:
    """Percentiles of a minute do not change between two requests."""
    ask(server)
    page = opened(browser, f"{dashboard}/live", [])

    def same() -> bool:
        p95 = overview(admin_port).minute.ttft.p95
        if p95 is None:
            ask(server)
            return False
        shown = re.sub(r"\s|✓|▲", "", tile(page, "First token"))
        value, unit = (p95 * 1000, "ms") if p95 < 1 else (p95, "s")
        return shown.endswith(unit) and float(shown.removesuffix(unit)) == float(f"{value:.3g}")

    until(same, 30, "the page to show the server's percentile")
    assert tile(page, "Running") == f"0/ {overview(admin_port).max_running}"
    page.close()


def test_a_reload_keeps_the_range(dashboard: str, browser: Browser) -> None:
    page = opened(browser, f"{dashboard}/live", [])
    page.get_by_text("15 min").click()
    page.wait_for_url(re.compile("minutes=15"))
    page.reload()
    page.locator(".tile").first.wait_for()
    assert "minutes=15" in page.url
    page.close()


def test_the_age_covers_nothing_on_a_small_phone(dashboard: str, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 320, "height": 700})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{dashboard}/live")
    age = page.locator(".age").filter(has_text="s old")
    age.wait_for()
    above = page.get_by_role("radiogroup", name="Range").bounding_box()
    shown, below = age.bounding_box(), page.locator(".band").bounding_box()
    assert above is not None
    assert shown is not None
    assert below is not None
    assert above["y"] + above["height"] <= shown["y"]
    assert shown["y"] + shown["height"] <= below["y"]
    page.close()


def test_a_server_that_goes_is_said_and_its_last_figures_stay(
    tmp_path: Path, browser: Browser
) -> None:
    port = free_port()
    with QuireServer("simulated:h100-8b", "--admin-port", str(port)) as server:
        admin = f"http://127.0.0.1:{port}"
        with dashboard_of(server.url, tmp_path / "log", admin=admin) as dashboard:
            page = opened(browser, f"{dashboard}/live", [])
            page.locator(".band").get_by_text("of 64 slots").or_(
                page.locator(".band").get_by_text("Idle", exact=True)
            ).wait_for()
            assert server.process is not None
            for pid in (server.process.pid, *descendants(server.process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            page.locator(".band").get_by_text("Unreachable").first.wait_for()
            assert tile(page, "Running").startswith("0")
            assert "critical" in (page.locator(".band").get_attribute("class") or "")
            page.close()


_GAP = """() => {
  const board = [...document.querySelectorAll("*")].find((each) => each.shadowRoot?.quire);
  const [server] = board.shadowRoot.quire.servers.values();
  const known = server.columns.running.slice(server.columns.running.findIndex((v) => v !== null));
  return known.slice(0, -2).filter((value) => value === null).length;
}"""


def test_what_was_measured_while_the_feed_was_away_is_drawn(
    server: QuireServer, admin_port: int, browser: Browser, tmp_path: Path
) -> None:
    admin, port = f"http://127.0.0.1:{admin_port}", free_port()
    with dashboard_of(server.url, tmp_path / "log", admin=admin, port=port) as dashboard:
        page = opened(browser, f"{dashboard}/live", [])
        until(lambda: page.evaluate(_GAP) == 0, 30, "the history")
    page.locator(".age").get_by_text(re.compile(r"\b[5-9]\.\d s old")).wait_for()
    with dashboard_of(server.url, tmp_path / "log", admin=admin, port=port):
        page.locator(".age").get_by_text(re.compile(r"\b[01]\.\d s old")).wait_for()
        until(lambda: page.evaluate(_GAP) == 0, 30, "the gap to be filled")
        page.close()


def test_a_page_that_reconnects_after_its_feed_was_refused_follows_the_feed(
    server: QuireServer, admin_port: int, browser: Browser, tmp_path: Path
) -> None:
    """It cannot get the new token of a dashboard that was restarted before it has reconnected."""
    admin, port = f"http://127.0.0.1:{admin_port}", free_port()
    with dashboard_of(server.url, tmp_path / "log", admin=admin, port=port) as dashboard:
        page = opened(browser, f"{dashboard}/live", [])
        page.locator(".age").get_by_text("s old").wait_for()
    page.route("**/_stcore/**", lambda route: route.abort())
    with (
        page.expect_response(lambda reply: reply.status == 403, timeout=PATIENCE_MS),
        dashboard_of(server.url, tmp_path / "log", admin=admin, port=port),
    ):
        page.locator(".age").get_by_text(re.compile(r"\b\d\d s old")).wait_for()
        page.unroute("**/_stcore/**")
        page.locator(".age").get_by_text(re.compile(r"\b[01]\.\d s old")).wait_for()
        page.close()


@pytest.mark.slow
def test_a_page_left_open_follows_with_a_new_token(
    server: QuireServer, admin_port: int, browser: Browser, tmp_path: Path
) -> None:
    admin = f"http://127.0.0.1:{admin_port}"
    with dashboard_of(server.url, tmp_path / "log", admin=admin) as dashboard:
        page = browser.new_page()
        page.clock.install()
        with page.expect_request("**/feed/**", timeout=PATIENCE_MS) as first:
            page.goto(f"{dashboard}/live")
        page.locator(".age").get_by_text("s old").wait_for()

        def is_with_another_token(request: Request) -> bool:
            return "/feed/" in request.url and request.url != first.value.url

        with page.expect_request(is_with_another_token, timeout=PATIENCE_MS) as second:
            page.clock.fast_forward("04:00")
        assert second.value.response().status == 200
        page.close()


def test_a_server_that_was_never_reached_is_named_and_the_others_are_shown(
    server: QuireServer, admin_port: int, closed_url: str, browser: Browser, tmp_path: Path
) -> None:
    admins = f"{closed_url} http://127.0.0.1:{admin_port}"
    with dashboard_of(f"{closed_url} {server.url}", tmp_path / "log", admin=admins) as dashboard:
        page = opened(browser, f"{dashboard}/live", [])
        gone = closed_url.removeprefix("http://")
        band = page.locator(".band").filter(has_text=f"{gone}: Unreachable")
        band.get_by_text("The numbers below are of the other servers.").wait_for()
        page.locator(".strip").get_by_text(f"{gone} unreachable").wait_for()
        page.locator(".age").get_by_text(re.compile(r"\d s old")).wait_for()
        assert tile(page, "Running") == f"0/ {overview(admin_port).max_running}"
        assert page.locator(".board.old").count() == 0
        page.close()


def test_without_admin_apis_the_server_that_is_shown_is_named(
    closed_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVERS_VARIABLE, f"{closed_url} http://127.0.0.1:9")
    monkeypatch.setenv(ADMIN_VARIABLE, "none none")
    page = AppTest.from_function(_draw, default_timeout=60).run()
    assert not page.exception
    named = closed_url.removeprefix("http://")
    assert page.caption[0].value.startswith(f"This is **{named}**.")
    assert [group.label for group in page.button_group] == ["Server"]
    page.button_group[0].set_value("127.0.0.1:9").run()
    assert not any("This is" in caption.value for caption in page.caption)


def test_of_servers_without_an_admin_api_those_left_out_are_named(
    closed_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with admin_server() as admin:
        monkeypatch.setenv(SERVERS_VARIABLE, f"{closed_url} http://127.0.0.1:9")
        monkeypatch.setenv(ADMIN_VARIABLE, f"{admin.url} none")
        page = AppTest.from_function(_draw_signed_in, default_timeout=60).run()
        assert not page.exception
        assert page.caption[0].value == "Not included, without an admin API: 127.0.0.1:9."
        assert [group.label for group in page.button_group] == ["Server", "Range"]


def _draw() -> None:
    from dashboard.views import live

    live.page()


def _draw_signed_in() -> None:
    from dashboard.access import remember_key
    from dashboard.views import live
    from tests.dashboard.admin_server import KEY

    remember_key(0, KEY)  # as the form does
    live.page()


def test_the_state_is_json_without_content(server: QuireServer, admin_port: int) -> None:
    canary = "canary-3141592"
    body = {"model": "simulated:h100-8b", "prompt": canary, "max_tokens": 2}
    assert server.post("/v1/completions", body)[0] == 200
    assert canary not in json.dumps(msgspec.to_builtins(overview(admin_port)))
