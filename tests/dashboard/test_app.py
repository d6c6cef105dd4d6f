"""The app and its first page, drawn by Streamlit against a running Quire, without a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.session import poller_for
from dashboard.settings import ADMIN_VARIABLE, NO_ADMIN, SERVERS_VARIABLE
from dashboard.words import UNKNOWN
from observability import catalogue
from tests.dashboard.drawn import tiles, words
from tests.e2e.quire_server import QuireServer, until

APP = Path(__file__).resolve().parents[2] / "dashboard" / "app.py"


@pytest.fixture
def live(quire: QuireServer, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setenv(SERVERS_VARIABLE, quire.url)
    monkeypatch.setenv(ADMIN_VARIABLE, NO_ADMIN)
    return AppTest.from_file(str(APP), default_timeout=60)


def test_the_live_page_says_what_runs_and_how_it_is(live: AppTest) -> None:
    text = words(live.run())
    assert "Ready" in text
    assert "`tiny` · cpu · float32" in text
    assert "context of 32,768 tokens" in text


def test_without_traffic_the_live_page_says_so_in_words(live: AppTest, quire: QuireServer) -> None:
    calm = {"First token, p95": UNKNOWN, "Generated": "0 tok/s"}
    until(lambda: calm.items() <= tiles(live.run()).items(), 90, "no traffic")
    shown = tiles(live)
    assert shown["Running"].startswith("0 / ")
    assert shown["Waiting"] == "0"
    assert shown["KV cache in use"] == "0 %"
    assert shown["Generated"] == "0 tok/s"
    assert not [value for value in shown.values() if "nan" in value.lower()]
    assert quire.total(catalogue.SEQUENCES_RUNNING.name) == 0


def test_the_live_page_shows_traffic(live: AppTest, quire: QuireServer) -> None:
    body = {"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}

    def seen() -> bool:
        assert quire.post("/v1/chat/completions", body)[0] == 200
        shown = tiles(live.run())
        return "≈" in shown["First token, p95"] and shown["Generated"] != "0 tok/s"

    until(seen, 90, "the requests to show")
    assert not live.exception
    assert "s" in tiles(live)["Between tokens, p95"]


def test_pausing_holds_the_numbers(live: AppTest, quire: QuireServer) -> None:
    live.run()
    live.toggle(key="pause").set_value(True).run()
    before = words(live), tiles(live)
    body = {"model": "tiny", "prompt": "Hello", "max_tokens": 8}
    assert quire.post("/v1/completions", body)[0] == 200
    poller = poller_for(quire.url)
    read = len(poller.view().readings)
    until(lambda: len(poller.view().readings) >= read + 2, 30, "newer numbers")
    assert (words(live.run()), tiles(live)) == before
    live.toggle(key="pause").set_value(False)

    def moved() -> bool:
        assert quire.post("/v1/completions", {**body, "max_tokens": 512})[0] == 200
        return tiles(live.run())["Generated"] != before[1]["Generated"]

    until(moved, 30, "the numbers to move again")


def test_a_server_that_is_not_there_is_named(
    closed_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVERS_VARIABLE, closed_url)
    text = words(AppTest.from_file(str(APP), default_timeout=60).run())
    assert "Unreachable" in text
    assert f"Could not connect to {closed_url}." in text
