"""The Load page; its runs are those of a running Quire, by the keys of an operator and a viewer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from streamlit.testing.v1 import AppTest

import dashboard.access
from dashboard.access import remember_key
from dashboard.admin_client import AdminClient, AdminRefusalError
from dashboard.settings import ADMIN_VARIABLE, SERVERS_VARIABLE
from dashboard.views.load import ends, latency_rows, state_of, totals
from dashboard.words import UNKNOWN
from observability.admin_api import (
    MAX_LOAD_CONCURRENCY,
    MAX_LOAD_RATE,
    MAX_LOAD_SECONDS,
    LoadRun,
    Quantiles,
)
from tests.dashboard.drawn import words
from tests.dashboard.running import dashboard_of, in_chromium
from tests.e2e.quire_server import QuireServer, free_port, until

if TYPE_CHECKING:
    from playwright.sync_api import Page

OPERATE, READ = "key-of-ann-0123456789", "key-of-bob-0123456789"


def run(**changed: object) -> LoadRun:
    given = {"profile": "chat", "rate": 2.0, "seconds": 30.0, "concurrency": 8}
    return LoadRun(**{**given, "started": 1000.0, "state": "done", **changed})  # type: ignore[arg-type]


def test_the_state_says_what_was_asked_and_how_far_it_is() -> None:
    asked = "chat, 2.00 requests per second for 30.0 s, at most 8 in flight."
    assert state_of(run(state="running", elapsed=12.0)) == f"**Running** (12.0 s so far): {asked}"
    assert state_of(run(elapsed=31.0)) == f"**Done** (31.0 s): {asked}"
    assert state_of(run(state="stopped", elapsed=5.0)).startswith("**Stopped** (5.00 s)")
    assert "all sent" in state_of(run(state="running", elapsed=30.5))


def test_totals_tell_failures_from_answers_and_are_per_second() -> None:
    ended = {"length": 6, "stop": 2, "refused:overloaded": 1, "error:engine": 1}
    figures = totals(run(sent=12, ended=ended, tokens_out=640, elapsed=20.0))
    assert figures["Sent"] == "12"
    assert figures["Cut off"] == "2"
    assert figures["Answered"] == "8"
    assert figures["Failed or refused"] == "2 (20.0 %)"
    assert figures["Requests ended per second"] == "0.500"
    assert figures["Output tokens per second"] == "32.0"


def test_totals_of_a_run_that_has_only_begun_are_unknown() -> None:
    figures = totals(run(state="running", sent=3))
    assert figures["In flight"] == "3"
    assert figures["Failed or refused"] == UNKNOWN
    assert figures["Output tokens per second"] == UNKNOWN


def test_latencies_come_with_their_percentiles() -> None:
    first, between, whole = latency_rows(run(ttft=Quantiles(0.5, 1.5, 2.5, 9)))
    assert (first["p50"], first["p95"], first["p99"]) == ("500 ms", "1.50 s", "2.50 s")
    assert first["requests"] == 9
    assert (between["p50"], whole["requests"]) == (UNKNOWN, 0)


def test_ends_say_what_they_mean_the_most_frequent_first() -> None:
    first, second = ends(run(ended={"refused:draining": 1, "length": 5}))
    assert (first["outcome"], first["requests"], first["group"]) == ("length", 5, "answered")
    assert second["meaning"] == "The server is draining and accepts no new requests."


@pytest.fixture(scope="module")
def admin_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def admin(admin_port: int) -> str:
    return f"http://127.0.0.1:{admin_port}"


@pytest.fixture(scope="module")
def server(admin_port: int) -> Iterator[QuireServer]:
    keys = ("--admin-key", f"operate:ann={OPERATE}", "--admin-key", f"read:bob={READ}")
    with QuireServer("simulated:h100-8b", "--admin-port", str(admin_port), *keys) as running:
        yield running


@pytest.fixture
def client(server: QuireServer, admin: str) -> Iterator[AdminClient]:
    """Leaves no run in progress to the next test."""
    client = AdminClient(admin, OPERATE)
    yield client
    if client.load().run is not None:
        client.stop_load()


def _draw() -> None:
    from dashboard.views import load

    load.page()


def drawn(server: QuireServer, admin: str, key: str, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setenv(SERVERS_VARIABLE, server.url)
    monkeypatch.setenv(ADMIN_VARIABLE, admin)
    monkeypatch.setattr(dashboard.access, "this_browser", lambda: f"browser of {key}")
    remember_key(0, key)
    page = AppTest.from_function(_draw, default_timeout=60).run()
    assert not page.exception
    return page


def press(page: AppTest, label: str) -> None:
    next(button for button in page.button if button.label == label).click().run()
    assert not page.exception


def labels(page: AppTest) -> set[str]:
    return {button.label for button in page.button}


def last(client: AdminClient) -> LoadRun:
    found = client.load().run
    assert found is not None
    return found


def test_the_form_has_the_bounds_of_the_api(
    server: QuireServer, admin: str, client: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = drawn(server, admin, OPERATE, monkeypatch)
    most = [(box.max, box.label) for box in page.number_input]
    for (bound, label), allowed in zip(
        most, (MAX_LOAD_RATE, MAX_LOAD_SECONDS, MAX_LOAD_CONCURRENCY), strict=True
    ):
        assert bound == allowed
        assert str(allowed) in label
    assert len(page.selectbox[0].options) == len(client.load().profiles)


def test_an_operator_runs_one_to_its_end_and_sees_its_figures(
    server: QuireServer, admin: str, client: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = drawn(server, admin, OPERATE, monkeypatch)
    rate, seconds, concurrency = page.number_input
    rate.set_value(20.0)
    seconds.set_value(2)
    concurrency.set_value(16)
    press(page, "Start")
    plan = last(client)
    assert (plan.rate, plan.seconds, plan.concurrency) == (20.0, 2.0, 16)
    until(lambda: last(client).state == "done", 60, "the run to end")
    page.run()
    ended = last(client)
    assert words(page).count("**Done**") == 1
    shown = {metric.label: metric.value for metric in page.metric}
    assert shown == totals(ended)
    assert shown["Answered"] == shown["Sent"] != "0"
    assert shown["Failed or refused"] == "0 (0 %)"
    latencies, outcomes = (table.value.to_dict("records") for table in page.dataframe)
    assert latencies == latency_rows(ended)
    assert UNKNOWN not in {row["p99"] for row in latencies}
    assert outcomes == ends(ended)
    assert "Stop" not in labels(page)


def test_an_operator_stops_one_and_a_second_is_refused_in_the_server_s_words(
    server: QuireServer, admin: str, client: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = drawn(server, admin, OPERATE, monkeypatch)
    client.start_load("chat", 5.0, 600, 8)  # by another operator, after the page was drawn
    press(page, "Start")
    with pytest.raises(AdminRefusalError) as refusal:
        client.start_load("chat", 5.0, 600, 8)
    assert page.error[0].value == str(refusal.value)
    page.run()
    assert "**Running**" in words(page)
    press(page, "Stop")
    assert "**Stopped**" in words(page)
    assert last(client).state == "stopped"
    assert last(client).elapsed < 60


def test_a_viewer_sees_the_figures_and_no_controls(
    server: QuireServer, admin: str, client: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.start_load("chat", 5.0, 600, 8)
    page = drawn(server, admin, READ, monkeypatch)
    assert "**Running**" in words(page)
    assert "Only operators can start or stop a load run: " in words(page)
    assert {metric.label for metric in page.metric} == set(totals(last(client)))
    assert labels(page) == {"Use another key"}
    assert len(page.number_input) == len(page.selectbox) == 0


@in_chromium
def test_figures_move_by_themselves_until_the_end(
    page: Page, server: QuireServer, admin: str, client: AdminClient, tmp_path: Path
) -> None:
    with dashboard_of(server.url, tmp_path / "log", admin=admin) as dashboard:
        page.goto(f"{dashboard}/load")
        page.get_by_label("Admin key").fill(OPERATE)
        page.get_by_role("main").get_by_role("button", name="Sign in").click()
        page.get_by_label("Seconds").fill("12")
        page.get_by_role("button", name="Start").click()
        page.get_by_text("Running").first.wait_for()
        page.get_by_text("Done").first.wait_for()
        page.get_by_role("button", name="Stop").wait_for(state="detached")
        sent = page.get_by_test_id("stMetric").filter(has_text="Sent")
        sent.get_by_text(str(last(client).sent), exact=True).first.wait_for()
