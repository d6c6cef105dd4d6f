"""Keys are made, shown once, rotated and revoked on the Admin page of a running Quire."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.admin_client import AdminClient
from dashboard.settings import ADMIN_VARIABLE, SERVERS_VARIABLE
from dashboard.views.keys import key_row, shared_words, valid_keys
from observability.key_listing import KeyRow
from tests.e2e.quire_server import QuireServer, free_port, until

OPERATE = "ann-operates-0123456789"
OTHER = "bob-operates-0123456789"
VIEW = "eve-only-reads-0123456789"
ROW = KeyRow(
    id="key_1",
    alias="team",
    shown="qk_abcdef",
    state="valid",
    source="store",
    created=0.0,
    expires=None,
    last_used=None,
    scopes=("inference", "read"),
    models=None,
    service_class="standard",
    weight=1.0,
    priority=False,
    requests_per_minute=5,
    tokens_per_minute=None,
    concurrent_requests=None,
    tokens_per_day=None,
)


def _draw() -> None:
    import os

    from dashboard.access import remember_key
    from dashboard.views import admin

    remember_key(0, os.environ["KEY_TYPED"])
    admin.page()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuireServer]:
    store = tmp_path_factory.mktemp("keys") / "store.sqlite3"
    port = free_port()
    operators = ("--admin-key", f"operate:ann={OPERATE}", "--admin-key", f"operate:bob={OTHER}")
    viewer = ("--admin-key", f"read:eve={VIEW}")
    keys = (*operators, *viewer, "--admin-port", str(port), "--stored-keys")
    with QuireServer("simulated:h100-8b", *keys, "--store-url", f"sqlite:///{store}") as server:
        server.admin_url = f"http://127.0.0.1:{port}"  # type: ignore[attr-defined]
        yield server


def press(page: AppTest, label: str) -> None:
    next(button for button in page.button if button.label == label).click().run()
    assert not page.exception


def test_a_key_s_life_on_the_page(served: QuireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = served.admin_url  # type: ignore[attr-defined]
    monkeypatch.setenv(SERVERS_VARIABLE, served.url)
    monkeypatch.setenv(ADMIN_VARIABLE, url)
    monkeypatch.setenv("KEY_TYPED", OPERATE)
    client = AdminClient(url, OPERATE)
    page = AppTest.from_function(_draw, default_timeout=60).run()
    assert not page.exception
    until(lambda: served.get("/v1/models", {"authorization": "Bearer x"})[0] == 401, 30, "keys")
    next(one for one in page.text_input if one.label == "Alias").set_value("team")
    next(one for one in page.number_input if one.label == "Requests per minute").set_value(5)
    press(page, "Make key")
    [code] = page.code
    with_key = {"authorization": f"Bearer {code.value}"}
    assert served.get("/v1/models", with_key)[0] == 200
    [row] = client.keys().keys
    assert (row.alias, row.requests_per_minute) == ("team", 5)
    page.run()
    assert page.code[0].value == code.value  # until it has been copied
    press(page, "Done")
    assert not page.code
    press(page, "Rotate now")
    assert page.code[0].value != code.value
    press(page, "Done")
    press(page, "Revoke now")
    states = [row.state for row in client.keys().keys]
    assert sorted(states) == ["revoked", "valid"]
    assert [row.action for row in client.audit()] == ["key revoke", "key rotate", "key create"]


@pytest.mark.parametrize("typed", [OTHER, VIEW], ids=["operator", "viewer"])
def test_a_key_just_made_is_not_shown_to_who_signs_in_next_in_the_tab(
    served: QuireServer, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.setenv(SERVERS_VARIABLE, served.url)
    monkeypatch.setenv(ADMIN_VARIABLE, served.admin_url)  # type: ignore[attr-defined]
    monkeypatch.setenv("KEY_TYPED", OPERATE)
    page = AppTest.from_function(_draw, default_timeout=60).run()
    next(one for one in page.text_input if one.label == "Alias").set_value(f"tab-{typed[:3]}")
    press(page, "Make key")
    assert page.code
    for key in (typed, OPERATE):
        monkeypatch.setenv("KEY_TYPED", key)
        page.run()
        assert not page.exception
        assert not page.code


def test_a_refusal_is_in_the_server_s_words(
    served: QuireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVERS_VARIABLE, served.url)
    monkeypatch.setenv(ADMIN_VARIABLE, served.admin_url)  # type: ignore[attr-defined]
    monkeypatch.setenv("KEY_TYPED", OPERATE)
    page = AppTest.from_function(_draw, default_timeout=60).run()
    next(one for one in page.text_input if one.label == "Alias").set_value("other")
    press(page, "Make key")
    assert "reserved" in page.error[0].value


def test_the_form_of_an_alias_that_has_keys_begins_with_what_its_newest_has(
    served: QuireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = served.admin_url  # type: ignore[attr-defined]
    monkeypatch.setenv(SERVERS_VARIABLE, served.url)
    monkeypatch.setenv(ADMIN_VARIABLE, url)
    monkeypatch.setenv("KEY_TYPED", OPERATE)
    client = AdminClient(url, OPERATE)
    before = {"tokens_per_day": 500, "concurrent_requests": 4, "weight": 2.5}
    others = {"service_class": "batch", "scopes": ["read"], "models": ["m"], "priority": True}
    client.create_key(alias="research", **before, **others)
    page = AppTest.from_function(_draw, default_timeout=60).run()
    [alias] = [one for one in page.text_input if one.label == "Alias"]
    alias.set_value("research")
    press(page, "Make key")  # without having seen the limits
    assert not page.code
    assert page.warning[0].value.startswith("research already has a key. ")
    fields = {one.label: one for one in (*page.number_input, *page.selectbox, *page.multiselect)}
    assert fields["Tokens per day (UTC)"].value == 500
    assert fields["Requests per minute"].value is None
    fields["Requests at once"].set_value(9)
    press(page, "Make key")
    assert page.code
    made = client.keys().keys[-1]
    assert (made.alias, made.tokens_per_day, made.concurrent_requests) == ("research", 500, 9)
    assert (made.service_class, made.weight, made.scopes) == ("batch", 2.5, ("read",))
    assert (made.models, made.priority) == (("m",), True)
    assert not page.warning  # which would read as if no key had been made
    press(page, "Done")
    assert page.warning[0].value.startswith("research already has 2 keys. ")


def test_the_key_whose_limits_count_is_the_last_valid_one() -> None:
    keys = [
        msgspec.structs.replace(ROW, id="key_0"),
        ROW,
        msgspec.structs.replace(ROW, id="key_2", state="revoked"),
        msgspec.structs.replace(ROW, id="key_3", alias="other-team"),
    ]
    assert [key.id for key in valid_keys(keys, "team")] == ["key_0", "key_1"]
    assert valid_keys(keys, "") == []


def test_it_is_said_that_all_keys_of_an_alias_change() -> None:
    assert "will apply to all its keys" in shared_words("team", 1)


def test_a_row() -> None:
    row = key_row(ROW)
    assert (row["key"], row["requests/min"], row["expires"], row["models"]) == (
        "qk_abcdef…",
        5,
        "",
        "all",
    )
    assert row["priority"] == ""
    assert key_row(msgspec.structs.replace(ROW, priority=True))["priority"] == "yes"
