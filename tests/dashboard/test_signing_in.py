"""How visitors sign in and out, drawn by Streamlit without a browser."""

from __future__ import annotations

import dataclasses
import re
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

import dashboard.access
import dashboard.signing_in
from dashboard.access import Access, Standing
from dashboard.admin_client import AdminClient
from dashboard.oidc import HOURS_VARIABLE
from dashboard.settings import ADMIN_KEY_VARIABLE, ADMIN_VARIABLE, SERVERS_VARIABLE
from dashboard.sign_in_return import FAILED
from dashboard.signing_in import not_responding
from tests.dashboard.admin_server import KEY, READ_KEY, AdminServer, admin_server
from tests.dashboard.drawn import words
from tests.dashboard.oidc_provider import oidc_provider

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "dashboard" / "app.py"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminServer]:
    with admin_server() as running:
        monkeypatch.setenv(SERVERS_VARIABLE, "http://a:1")
        monkeypatch.setenv(ADMIN_VARIABLE, running.url)
        monkeypatch.setenv(ADMIN_KEY_VARIABLE, KEY)
        monkeypatch.setattr(dashboard.access, "this_browser", lambda: "of this test")
        monkeypatch.setattr(dashboard.access, "_typed", {})
        yield running


def labels(page: AppTest) -> list[str]:
    return [button.label for button in page.button]


def by_oidc(path: str, *, failed: bool = False, **claims: Any) -> AppTest:
    """A page of the app for a visitor whose cookie has these claims; without any, a stranger.
    ``failed``: the visitor comes back from a sign-in that failed."""
    page = AppTest.from_file(str(APP), default_timeout=60)
    page.secrets["auth"] = {"operators": "ops"}
    page.user = {"is_logged_in": bool(claims), "groups": ["ops"], **claims}
    page._page_hash = calc_hash(path)  # switch_page() finds pages that are files, and no others
    if failed:
        page.query_params[FAILED] = "yes"
    return page.run()


@pytest.mark.parametrize(
    "path", ["live", "requests", "kv", "usage", "playground", "load", "admin", "request"]
)
def test_with_oidc_no_page_is_shown_to_strangers(server: AdminServer, path: str) -> None:
    page = by_oidc(path)
    assert labels(page) == ["Sign in"]
    assert not [*page.exception, *page.text_input, *page.chat_input, *page.caption]
    assert not server.asked


def test_a_sign_in_by_oidc_ends_after_the_set_hours(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_hours_ago = int(time.time()) - 7200
    assert "Start" in labels(by_oidc("load", iat=two_hours_ago, exp=two_hours_ago + 300))
    monkeypatch.setenv(HOURS_VARIABLE, "1")
    ended = by_oidc("load", iat=two_hours_ago)
    assert labels(ended) == ["Sign in"]
    assert words(ended) == "Your sign-in has ended. Sign in again."
    assert labels(by_oidc("load", sub="ann")) == ["Sign in"]  # no one knows since when


@pytest.mark.parametrize(
    ("groups", "operates"),
    [(["staff"], False), (["staff", "ops"], True), ("ops", True), ("drops", False), (None, False)],
    ids=["another", "among others", "one name", "a longer name", "none"],
)
def test_of_those_signed_in_by_oidc_only_the_operators_may_load_the_server(
    server: AdminServer, groups: object, operates: bool
) -> None:
    page = by_oidc("load", iat=int(time.time()), groups=groups)
    assert ("Start" in labels(page)) == operates


def test_the_documented_example_of_sign_in_by_oidc_has_what_a_provider_needs() -> None:
    """The provider of tests/dashboard/test_operating_in_browser.py, which sends groups only if they
    are requested."""
    page = (ROOT / "docs" / "dashboard.md").read_text()
    example = re.search(r"```toml\n(\[auth\]\n.*?)```", page, re.DOTALL)
    assert example
    documented = tomllib.loads(example[1])["auth"]
    with oidc_provider() as provider:
        used = tomllib.loads(provider.secrets_file("http://dashboard", "ops"))["auth"]
    assert documented.keys() == used.keys()
    assert documented["client_kwargs"] == used["client_kwargs"]


def test_a_sign_in_that_failed_is_offered_again_and_forgotten_once_it_succeeds(
    server: AdminServer,
) -> None:
    page = by_oidc("load", failed=True)
    assert page.error[0].value == "Signing in failed. The dashboard's log says why."
    assert labels(page) == ["Sign in"]
    page = by_oidc("load", failed=True, iat=int(time.time()))
    assert not page.error
    assert FAILED not in page.query_params


def test_a_page_that_is_left_open_ends_with_the_sign_in(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter([60.0])
    monkeypatch.setattr(dashboard.signing_in, "sign_in_left", lambda: next(left, 0.0))
    assert labels(by_oidc("load", iat=int(time.time()))) == ["Sign in"]


def test_a_visitor_signed_in_by_oidc_signs_out_on_every_page(server: AdminServer) -> None:
    for path in ("playground", "load"):
        page = by_oidc(path, iat=int(time.time()))
        next(button for button in page.button if button.label == "Sign out").click().run()
        assert labels(page) == ["Sign in"]


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ("rotated", "a:1 refuses the admin key of this dashboard. The admin key is wrong. Set "),
        ("", "a:1 requires an admin key, and this dashboard has none. Set "),
    ],
)
@pytest.mark.parametrize("path", ["live", "load"])
def test_visitors_signed_in_by_oidc_see_what_is_wrong_with_the_dashboard_s_key(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch, path: str, key: str, fault: str
) -> None:
    monkeypatch.setenv(ADMIN_KEY_VARIABLE, key)
    page = by_oidc(path, iat=int(time.time()))
    assert labels(page) == ["Sign out"]
    assert page.error[0].value.startswith(f"{fault}`{ADMIN_KEY_VARIABLE}` to ")


def test_a_key_is_exchanged_for_another_and_forgotten(server: AdminServer) -> None:
    assert not dashboard.access.try_key(0, READ_KEY)
    page = AppTest.from_function(_draw_operators_only).run()
    assert labels(page) == ["Use another key"]
    page.button[0].click().run()
    assert page.text_input[0].label == "Admin key"
    assert not dashboard.access.has_typed_key(0)


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


def _draw_operators_only() -> None:
    from dashboard.signing_in import admitted, operators_only

    admitted(0)
    operators_only("do this", 0)


def _draw() -> None:
    from dashboard.signing_in import admitted

    admitted(0)


def test_it_is_said_what_to_do_where_an_admin_api_has_never_answered() -> None:
    absent = Access(Standing.ABSENT, AdminClient(""), "Could not connect to http://h:1.")
    said = not_responding("h:8000", absent)
    assert said.startswith("The admin API of h:8000 is not responding. Could not connect to ")
    assert "`--no-admin`" in said
    assert f"`{ADMIN_VARIABLE}`" in said
    away = not_responding("h:8000", dataclasses.replace(absent, standing=Standing.AWAY))
    assert "--no-admin" not in away
