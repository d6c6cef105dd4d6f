"""The field for the admin key, drawn by Streamlit without a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import dashboard.access
from dashboard.settings import ADMIN_KEY_VARIABLE, ADMIN_VARIABLE, SERVERS_VARIABLE
from tests.dashboard.admin_server import KEY, admin_server

APP = Path(__file__).resolve().parents[2] / "dashboard" / "app.py"


def test_a_key_is_typed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVERS_VARIABLE, "http://a:1")
    monkeypatch.setattr(dashboard.access, "this_browser", lambda: "of this test")
    monkeypatch.delenv(ADMIN_KEY_VARIABLE, raising=False)
    with admin_server() as server:
        monkeypatch.setenv(ADMIN_VARIABLE, server.url)
        page = AppTest.from_file(str(APP), default_timeout=60).run()
        assert not any("Bearer" in caption.value for caption in page.caption)
        page.text_input[0].set_value("wrong")
        page.button[0].click().run()
        assert any("The admin key is wrong." in caption.value for caption in page.caption)
        page.text_input[0].set_value(KEY)
        page.button[0].click().run()
        assert not page.text_input
        assert not page.exception
        again = AppTest.from_file(str(APP), default_timeout=60).run()
        assert not again.text_input


def test_a_page_says_that_it_has_no_address_of_the_admin_api(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SERVERS_VARIABLE, "http://a:1")
    monkeypatch.setenv(ADMIN_VARIABLE, "none")
    page = AppTest.from_function(_draw).run()
    assert page.info[0].value == (
        "This page needs the admin API of a:1, but this dashboard has no address for it. "
        f"Set `{ADMIN_VARIABLE}` and restart the dashboard."
    )


def _draw() -> None:
    from dashboard.signing_in import admitted

    admitted(0)
