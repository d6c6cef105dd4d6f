"""What pages show while a server is restarted, drawn by Streamlit without a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from streamlit.testing.v1 import AppTest

import dashboard.access
import dashboard.refused
from dashboard.settings import ADMIN_VARIABLE, SERVERS_VARIABLE
from tests.dashboard.admin_server import KEY, AdminServer, admin_server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminServer]:
    with admin_server() as running:
        monkeypatch.setenv(SERVERS_VARIABLE, "http://a:1")
        monkeypatch.setenv(ADMIN_VARIABLE, running.url)
        monkeypatch.setattr(dashboard.access, "this_browser", lambda: "of this test")
        monkeypatch.setattr(dashboard.access, "_typed", {})
        dashboard.access.remember_key(0, KEY)
        yield running


def _draw_usage() -> None:
    from dashboard.views import usage

    usage.page()


def test_what_passes_by_itself_is_tried_again(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard.refused, "_RETRY_SECONDS", 0.0)
    server.refusals["/admin/v1/usage"] = [503, 502, 504]
    page = AppTest.from_function(_draw_usage, default_timeout=60).run()
    assert page.info[0].value == "No requests ended in this period."
    assert not page.warning


@pytest.mark.parametrize("status", [404, 500])
def test_what_does_not_pass_stays_as_it_is(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(dashboard.refused, "_RETRY_SECONDS", 0.0)
    server.refusals["/admin/v1/usage"] = [status]
    page = AppTest.from_function(_draw_usage, default_timeout=60).run()
    assert page.warning[0].value == "Not now."


def test_a_page_is_not_drawn_again_at_once(server: AdminServer) -> None:
    server.refusals["/admin/v1/usage"] = [503]
    page = AppTest.from_function(_draw_usage, default_timeout=60).run()
    assert page.warning[0].value == "Not now."


def _draw_cancel() -> None:
    import streamlit as st

    from dashboard.refused import carried_out
    from dashboard.signing_in import admitted

    if st.button("Cancel"):
        carried_out(lambda: admitted(0).client.cancel("req_1"))


def test_an_order_that_is_refused_says_so(server: AdminServer) -> None:
    """A request that is to be cancelled may have ended since the page was drawn."""
    server.refusals["/admin/v1/requests/req_1/cancel"] = [409]
    page = AppTest.from_function(_draw_cancel, default_timeout=60).run()
    page.button[0].click().run()
    assert [error.value for error in page.error] == ["Not now."]
    assert not page.exception
