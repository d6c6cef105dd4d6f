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
