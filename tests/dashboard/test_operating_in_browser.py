"""What an operator does in Chromium: signs in, cancels a request, looks at several servers."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs, urlsplit

import pytest

from dashboard.admin_client import AdminClient
from dashboard.settings import ADMIN_KEY_VARIABLE
from tests.dashboard.accessible import AXE, violations
from tests.dashboard.oidc_provider import CLIENT_ID, oidc_provider
from tests.dashboard.running import (
    IN_CHROMIUM,
    PATIENCE_MS,
    dashboard_of,
    set_clock,
    watched_server,
    wrong_clock,
)
from tests.e2e.quire_server import QuireServer, free_port, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = IN_CHROMIUM

MODEL = "simulated:step=20ms"
OPERATE, READ = "test-operate-key-0123456789", "test-read-key-0123456789"


class Stream:
    """A client that reads a long answer in a thread."""

    def __init__(self, server: QuireServer) -> None:
        self.events: list[Any] = []
        self.ended = threading.Event()
        self._port = server.port
        threading.Thread(target=self._read, daemon=True).start()
        until(lambda: len(self.events) > 3, 60, "an answer")

    def _read(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        body = {"prompt": "Hello", "max_tokens": 4000, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body))
        reply = connection.getresponse()
        while line := reply.readline():
            if line.startswith(b"data: {"):
                self.events.append(json.loads(line[6:]))
        connection.close()
        self.ended.set()


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("Admin key").fill(key)
    page.get_by_role("main").get_by_role("button", name="Sign in").click()


def test_an_operator_cancels_a_request_and_a_viewer_cannot(
    browser: Browser, page: Page, tmp_path: Path
) -> None:
    keys = (*("--admin-key", f"operate:ann={OPERATE}"), *("--admin-key", f"read:rob={READ}"))
    with watched_server(tmp_path / "log", MODEL, *keys) as (server, admin, dashboard):
        stream = Stream(server)
        client = AdminClient(admin.url, READ)
        [live] = client.requests(state="live").requests
        address = f"{dashboard}/request?id={live.request_id}"
        viewer = browser.new_page()
        viewer.set_default_timeout(PATIENCE_MS)
        viewer.goto(address)
        sign_in(viewer, READ)
        viewer.get_by_text("Phases").first.wait_for()
        assert viewer.get_by_role("button", name="Cancel").count() == 0
        viewer.close()
        page.goto(address)
        sign_in(page, "wrong-key-0123456789")
        page.get_by_text("admin key").filter(has_text="wrong").or_(
            page.get_by_text("not accepted")
        ).first.wait_for()
        sign_in(page, OPERATE)
        page.get_by_role("button", name="Cancel").click()
        assert stream.ended.wait(30), "the client's stream did not end"
        until(lambda: client.request(live.request_id).outcome == "cancelled", 30, "its outcome")
        page.reload()
        page.get_by_text("cancelled").first.wait_for()
        assert page.get_by_role("button", name="Cancel").count() == 0
        said = stream.events[-1]
        assert "error" in said or said["choices"][0]["finish_reason"], said


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core (make test installs it)")
@pytest.mark.parametrize("look", ["light", "dark"])
def test_what_an_operator_presses_is_readable(
    browser: Browser, tmp_path: Path, look: Literal["light", "dark"]
) -> None:
    store = ("--stored-keys", "--store-url", f"sqlite:///{tmp_path / 'store.sqlite3'}")
    keys = ("--admin-key", f"operate:ann={OPERATE}")
    with watched_server(tmp_path / "log", MODEL, *keys, *store) as (_, _, dashboard):
        page = browser.new_page(viewport={"width": 1280, "height": 1600}, color_scheme=look)
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{dashboard}/load")
        page.get_by_label("Admin key").wait_for()
        wrong = {"signing in": violations(page)}
        sign_in(page, OPERATE)
        page.get_by_role("button", name="Start").hover()
        wrong["Load"] = violations(page)
        page.get_by_role("link", name="Admin").click()
        page.get_by_text("New key", exact=True).click()
        page.get_by_role("button", name="Make key").wait_for()
        page.wait_for_timeout(500)  # unfolded, and not in the middle of it
        wrong["a new key"] = violations(page)
        alias = page.get_by_label("Alias", exact=True)
        alias.fill("team")
        alias.press("Enter")
        page.get_by_text("Press Enter to apply").wait_for(state="hidden")
        page.get_by_role("button", name="Make key").click()
        page.get_by_role("dialog").get_by_role("button", name="Done").hover()
        page.wait_for_timeout(500)  # faded in
        wrong["a key just made"] = violations(page)
        page.close()
    assert not any(wrong.values()), wrong


def test_a_key_just_made_is_in_view_until_it_has_been_copied(page: Page, tmp_path: Path) -> None:
    store = ("--stored-keys", "--store-url", f"sqlite:///{tmp_path / 'store.sqlite3'}")
    keys = ("--admin-key", f"operate:ann={OPERATE}")
    with watched_server(tmp_path / "log", MODEL, *keys, *store) as (_, admin, dashboard):
        client = AdminClient(admin.url, OPERATE)
        for number in range(12):  # a table above the form
            client.create_key(alias=f"team-{number}")
        page.goto(f"{dashboard}/admin")
        sign_in(page, OPERATE)
        page.get_by_text("New key", exact=True).click()
        alias = page.get_by_label("Alias", exact=True)
        alias.fill("team-3")
        alias.press("Enter")
        page.get_by_text("team-3 already has a key.").wait_for()
        page.get_by_role("button", name="Make key").click()
        shown = page.get_by_role("dialog")
        made = shown.get_by_test_id("stCode")
        made.wait_for()
        key = made.inner_text().strip()
        box = made.bounding_box()
        assert box is not None
        assert 0 <= box["y"] <= 800 - box["height"]
        assert page.get_by_text("team-3 already has").count() == 0
        page.keyboard.press("Escape")
        page.wait_for_timeout(2_500)  # what serves is drawn anew every two seconds
        assert made.inner_text().strip() == key
        shown.get_by_role("button", name="Done").click()
        shown.wait_for(state="detached")
        page.get_by_text("team-3 already has 2 keys.").wait_for()
        assert page.get_by_text(key).count() == 0


def tiles(page: Page) -> dict[str, str]:
    found = {}
    for tile in page.locator(".tile").all_inner_texts():
        label, *shown = (line.strip() for line in tile.split("\n") if line.strip())
        found[label] = " ".join(shown)
    return found


def test_several_servers_are_summed_and_one_that_is_gone_is_named(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = [free_port(), free_port()]
    admins = " ".join(f"http://127.0.0.1:{port}" for port in ports)
    with (
        QuireServer(MODEL, "--admin-port", str(ports[0])) as first,
        QuireServer(MODEL, "--admin-port", str(ports[1])) as second,
        dashboard_of(f"{first.url} {second.url}", tmp_path / "log", admin=admins) as dashboard,
    ):
        streams = [Stream(server) for server in (first, first, second)]
        page.goto(f"{dashboard}/live")
        until(lambda: tiles(page).get("Running", "").startswith("3"), 60, "the sum of both")
        strip = page.locator(".strip").inner_text()
        assert "2 running" in strip
        assert "1 running" in strip
        page.get_by_role("radio").filter(has_text=str(second.port)).click()
        until(lambda: tiles(page).get("Running", "").startswith("1"), 60, "the second alone")
        page.get_by_role("radio").filter(has_text="all").click()
        until(lambda: tiles(page).get("Running", "").startswith("3"), 60, "the sum again")
        second.terminate(90)
        band = page.locator(".band").filter(has_text=str(second.port))
        band.filter(has_text="Unreachable").wait_for()
        assert all(stream.events for stream in streams)


@pytest.mark.parametrize("seconds", [-1200, 1200])
def test_a_server_whose_clock_is_wrong_is_in_the_charts_too(
    page: Page, tmp_path: Path, seconds: int
) -> None:
    ports = [free_port(), free_port()]
    admins = " ".join(f"http://127.0.0.1:{port}" for port in ports)
    wrong = QuireServer(MODEL, "--admin-port", str(ports[1]))
    set_clock(wrong_clock(wrong, tmp_path / "clock"), seconds)
    with (
        QuireServer(MODEL, "--admin-port", str(ports[0])) as first,
        wrong as second,
        dashboard_of(f"{first.url} {second.url}", tmp_path / "log", admin=admins) as dashboard,
    ):
        ahead = AdminClient(admins.split()[1]).overview()[0].time - time.time()
        assert abs(ahead - seconds) < 30
        streams = [Stream(server) for server in (second, second, first)]
        page.goto(f"{dashboard}/live")
        sum_of_both = page.locator("canvas[aria-label^='Sequences: running 3']")
        clock = re.compile("its clock is (19 min 5.|20 min .) s (ahead|behind)")
        page.locator(".strip").get_by_text(clock).wait_for()
        for minutes in ("15 min", "5 min"):  # others begin with what the servers remember
            page.get_by_role("radio", name=minutes, exact=True).click()
            for _ in range(3):
                sum_of_both.wait_for()
                page.wait_for_timeout(1_500)  # into the next second
        assert all(stream.events for stream in streams)


def test_charts_begin_anew_when_the_clock_that_they_follow_is_set_back(
    page: Page, tmp_path: Path
) -> None:
    ports = [free_port(), free_port()]
    admins = " ".join(f"http://127.0.0.1:{port}" for port in ports)
    servers = [QuireServer(MODEL, "--admin-port", str(port)) for port in ports]
    clocks = [wrong_clock(one, tmp_path / f"clock{n}") for n, one in enumerate(servers)]
    set_clock(clocks[1], 1200)  # so that the strip names the one whose clock the charts follow
    with (
        servers[0] as first,
        servers[1] as second,
        dashboard_of(f"{first.url} {second.url}", tmp_path / "log", admin=admins) as dashboard,
    ):
        streams = [Stream(server) for server in (second, second, first)]
        page.goto(f"{dashboard}/live")
        sum_of_both = page.locator("canvas[aria-label^='Sequences: running 3']")
        sum_of_both.wait_for()
        named = page.locator(".strip").get_by_text(re.compile("its clock is .* s (ahead|behind)"))
        followed = 0 if f":{first.port}'s" in named.inner_text() else 1
        set_clock(clocks[followed], 1200 * followed - 7200)
        for _ in range(3):
            page.wait_for_timeout(15_000)  # longer than a message may be late
            sum_of_both.wait_for()
        assert all(stream.events for stream in streams)


def test_links_reloads_and_chats_stay_with_their_server(page: Page, tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    admins = [f"http://127.0.0.1:{port}" for port in ports]
    with (
        QuireServer(MODEL, "--admin-port", str(ports[0])) as first,
        QuireServer(MODEL, "--admin-port", str(ports[1])) as second,
        dashboard_of(
            f"{first.url} {second.url}", tmp_path / "log", admin=" ".join(admins)
        ) as dashboard,
    ):
        asked = {}
        for server, admin in zip((first, second), admins, strict=True):
            body = {"prompt": "Hello", "max_tokens": 2}
            assert server.post("/v1/completions", body)[0] == 200
            client = AdminClient(admin)
            [ended] = until(lambda c=client: c.requests(state="ended").requests, 60, "a record")  # type: ignore[misc]
            asked[server.port] = ended.request_id

        def shows(server: QuireServer) -> None:
            cells = page.get_by_test_id("stDataFrame").locator("td")
            cells.filter(has_text=asked[server.port]).wait_for(state="attached")

        def pick(server: QuireServer) -> None:
            page.get_by_role("combobox", name="Server").click()
            page.get_by_role("option", name=f"127.0.0.1:{server.port}").click()

        name = f"127.0.0.1:{second.port}"
        in_address = re.compile(f"server=127.0.0.1(:|%3A){second.port}")
        page.goto(f"{dashboard}/live")
        page.get_by_role("link", name=name).click()
        page.wait_for_url(in_address)
        shows(second)
        page.reload()
        shows(second)
        pick(first)
        shows(first)
        page.go_back()
        shows(second)
        page.get_by_role("link", name="Playground").click()
        page.wait_for_url(in_address)
        question = page.get_by_test_id("stChatInputTextArea")
        question.fill("Hello")
        question.press("Enter")
        inspect = page.get_by_role("link", name="Inspect request")
        inspect.wait_for()
        assert in_address.search(inspect.get_attribute("href") or "")
        [chat] = parse_qs(urlsplit(page.url).query)["chat"]
        page.goto(f"{dashboard}/playground?chat={chat}")
        page.wait_for_url(in_address)
        pick(first)
        page.wait_for_url(f"**server=127.0.0.1%3A{first.port}*")
        page.get_by_role("button", name="Copy as code").click()
        page.get_by_text(f"{second.url}/v1/chat/completions").first.wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("link", name="Live").click()
        page.locator(".strip").wait_for()
        page.get_by_role("radio").filter(has_text=str(second.port)).click()
        page.locator(".strip").wait_for(state="hidden")  # the second alone
        page.get_by_role("link", name="Requests").click()
        shows(second)


def test_visitors_sign_in_by_oidc_and_only_the_named_group_operates(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, own_port = free_port(), free_port()
    address = f"http://127.0.0.1:{own_port}"
    (tmp_path / ".streamlit").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(ADMIN_KEY_VARIABLE, OPERATE)
    with oidc_provider() as provider:
        secrets_file = tmp_path / ".streamlit" / "secrets.toml"
        secrets_file.write_text(provider.secrets_file(address, "ops"))
        with (
            QuireServer(
                MODEL, "--admin-port", str(port), "--admin-key", f"operate:ann={OPERATE}"
            ) as server,
            dashboard_of(
                server.url,
                tmp_path / "log",
                admin=f"http://127.0.0.1:{port}",
                port=own_port,
            ),
        ):
            for groups, operates in ((["staff"], False), (["staff", "ops"], True)):
                provider.groups = groups
                visitor = browser.new_context()
                page = visitor.new_page()
                page.set_default_timeout(PATIENCE_MS)
                page.goto(f"{address}/playground")
                offered = page.get_by_role("main").get_by_role("button", name="Sign in")
                offered.wait_for()
                assert page.get_by_test_id("stChatInputTextArea").count() == 0
                page.goto(f"{address}/requests?key=alice&since=hour")
                provider.audience = "another client"
                offered.click()
                page.get_by_text("Signing in failed. The dashboard's log says why.").wait_for()
                provider.audience = CLIENT_ID
                offered.click()
                page.get_by_role("textbox", name="Key").wait_for()
                assert page.get_by_role("textbox", name="Key").input_value() == "alice"
                assert page.url == f"{address}/requests?key=alice&since=hour"
                page.get_by_role("link", name="Load").click()
                page.get_by_text("There has been no load run").first.wait_for()
                assert page.get_by_role("button", name="Start").count() == operates
                page.get_by_role("button", name="Sign out").click()
                offered.wait_for()
                page.reload()
                offered.wait_for()
                visitor.close()
    assert OPERATE not in (tmp_path / "log").read_text()
