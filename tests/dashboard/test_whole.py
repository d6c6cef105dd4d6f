"""Whole numbers as they are typed, in Chromium and without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.admin_client import AdminClient
from dashboard.whole import UNUSABLE, not_whole
from tests.dashboard.running import in_chromium, watched_server
from tests.dashboard.test_operating_in_browser import sign_in
from tests.e2e.quire_server import until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

OPERATE = "key-of-ann-0123456789"
SETTING = "max_waiting_requests"


def _draw() -> None:
    import streamlit as st

    from dashboard.whole import whole_field

    st.session_state["found"] = whole_field("Requests", 1, value=None, key="requests")


@pytest.mark.parametrize(
    ("entered", "found"), [(100_000.0, 100_000), (2.048, UNUSABLE), (None, None)]
)
def test_what_a_field_gives(entered: float | None, found: object) -> None:
    app = AppTest.from_function(_draw, default_timeout=60).run()
    app.number_input(key="requests").set_value(entered).run()
    assert not app.exception
    assert app.session_state["found"] == found
    assert [one.value for one in app.error] == ([not_whole(2.048)] if found is UNUSABLE else [])


def test_a_number_that_is_not_whole_is_named_in_full() -> None:
    assert not_whole(2.048) == (
        "2.048 is not a whole number. Enter one without a point, such as 2048."
    )


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AdminClient, str]]:
    directory = tmp_path_factory.mktemp("whole")
    options = (
        *("--stored-keys", "--store-url", f"sqlite:///{directory / 'store.sqlite3'}"),
        *("--admin-key", f"operate:ann={OPERATE}"),
    )
    with watched_server(directory / "log", "simulated:h100-8b", *options) as (_, admin, url):
        yield AdminClient(admin.url, OPERATE), url


def opened(page: Page, address: str) -> None:
    """A page of the dashboard, for an operator."""
    page.goto(address)
    sign_in(page, OPERATE)


def enter(page: Page, label: str, typed: str) -> Locator:
    """Type as a person does; the field is left as it is then."""
    field = page.get_by_role("spinbutton", name=label)
    field.fill("")
    field.press_sequentially(typed)
    field.press("Enter")
    return field


@in_chromium
@pytest.mark.parametrize(("typed", "meant"), [("1e5", 100_000), ("2,048", 2048), ("4e2", 400)])
def test_a_setting_is_saved_as_it_was_typed(
    page: Page, watched: tuple[AdminClient, str], typed: str, meant: int
) -> None:
    client, url = watched
    opened(page, f"{url}/admin")
    page.get_by_role("combobox", name="Change").click()
    page.get_by_role("option", name=SETTING, exact=True).click()
    enter(page, SETTING, typed)
    until(lambda: setting(client) == meant, 30, "the setting")


def setting(client: AdminClient) -> float | str:
    return next(one.value for one in client.settings().settings if one.name == SETTING)


@in_chromium
def test_a_number_with_a_fraction_is_refused_next_to_its_field(
    page: Page, watched: tuple[AdminClient, str]
) -> None:
    client, url = watched
    before = setting(client)
    opened(page, f"{url}/admin")
    page.get_by_role("combobox", name="Change").click()
    page.get_by_role("option", name=SETTING, exact=True).click()
    enter(page, SETTING, "2.048")
    page.get_by_text(not_whole(2.048)).wait_for()
    assert setting(client) == before
    page.get_by_role("link", name="Load").click()
    enter(page, "Maximum in flight", "2.5")
    page.get_by_text(not_whole(2.5)).wait_for()
    assert client.load().run is None


@in_chromium
def test_a_key_has_the_limits_that_were_typed(page: Page, watched: tuple[AdminClient, str]) -> None:
    client, url = watched
    opened(page, f"{url}/admin")
    page.get_by_text("New key", exact=True).click()
    page.get_by_role("textbox", name="Alias").fill("team")
    page.get_by_role("textbox", name="Alias").press("Enter")
    enter(page, "Tokens per minute", "1.5")
    page.get_by_text(not_whole(1.5)).wait_for()
    assert "team" not in {key.alias for key in client.keys().keys}
    enter(page, "Tokens per minute", "1e6")
    page.get_by_text("A key of team.").wait_for()
    [key] = [key for key in client.keys().keys if key.alias == "team"]
    assert key.tokens_per_minute == 1_000_000


@in_chromium
def test_a_load_run_lasts_as_long_as_was_typed(
    page: Page, watched: tuple[AdminClient, str]
) -> None:
    client, url = watched
    opened(page, f"{url}/load")
    enter(page, "Seconds", "4e2")
    until(lambda: client.load().run, 30, "a run")
    client.stop_load()
    run = client.load().run
    assert run is not None
    assert run.seconds == 400


@in_chromium
def test_max_tokens_and_seed_are_sent_as_they_were_typed(
    page: Page, watched: tuple[AdminClient, str]
) -> None:
    client, url = watched
    key = client.create_key(alias="player")
    page.goto(f"{url}/playground")
    page.get_by_label("API key", exact=True).fill(key.key)
    page.get_by_label("API key", exact=True).press("Enter")
    page.get_by_text("More", exact=True).click()
    enter(page, "Seed", str(2**53 - 1))
    enter(page, "Max tokens", "1e3")
    field = page.get_by_test_id("stChatInputTextArea")
    field.fill("Hello")
    field.press("Enter")
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Copy as code").click()
    page.get_by_text('"max_tokens": 1000').first.wait_for()
    page.get_by_text(f'"seed": {2**53 - 1}').first.wait_for()
    page.keyboard.press("Escape")
    enter(page, "Max tokens", "2.048")
    page.get_by_text(not_whole(2.048)).wait_for()
    page.get_by_placeholder("Correct the settings first").wait_for()
