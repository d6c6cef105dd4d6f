from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import streamlit as st
from streamlit.config import set_option
from streamlit.runtime.secrets import Secrets

import dashboard.access
import dashboard.probes
from dashboard.access import (
    Standing,
    access,
    accesses,
    is_operator,
    remember_key,
    try_key,
    uses_oidc,
)
from dashboard.probes import Probes
from dashboard.settings import ADMIN_KEY_VARIABLE, ADMIN_VARIABLE, SERVERS_VARIABLE
from tests.dashboard.admin_server import KEY, READ_KEY, AdminServer, admin_server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminServer]:
    with admin_server() as running:
        monkeypatch.setenv(SERVERS_VARIABLE, "http://a:1")
        monkeypatch.setenv(ADMIN_VARIABLE, running.url)
        monkeypatch.setenv(ADMIN_KEY_VARIABLE, KEY)
        monkeypatch.setattr(dashboard.access, "this_browser", lambda: "one")
        yield running


def test_the_dashboard_s_own_key_admits_nobody(server: AdminServer) -> None:
    assert access(0).standing is Standing.STRANGER
    assert not access(0).reads


@pytest.mark.parametrize(
    ("key", "standing"), [(KEY, Standing.OPERATOR), (READ_KEY, Standing.VIEWER)]
)
def test_a_typed_key_admits_its_browser_to_what_it_may_do(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch, key: str, standing: Standing
) -> None:
    remember_key(0, key)
    assert access(0).standing is standing
    monkeypatch.setattr(dashboard.access, "this_browser", lambda: "another")
    assert access(0).standing is Standing.STRANGER


def test_a_typed_key_is_forgotten_in_time(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard.access, "_REMEMBERED_SECONDS", 0.0)
    remember_key(0, KEY)
    assert access(0).standing is Standing.STRANGER


def test_wrong_keys_are_not_remembered_and_push_nobody_out(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard.access, "_MOST_REMEMBERED", 2)
    monkeypatch.setattr(dashboard.access, "_typed", {})
    assert try_key(0, READ_KEY) == ""
    for browser in ("two", "three", "four"):
        monkeypatch.setattr(dashboard.access, "this_browser", lambda name=browser: name)
        assert try_key(0, "wrong") == "The admin key is wrong."
        assert "other than printable ASCII" in try_key(0, f"{KEY}\u200b")
    monkeypatch.setattr(dashboard.access, "this_browser", lambda: "one")
    assert access(0).standing is Standing.VIEWER


def test_of_too_many_browsers_the_latest_are_signed_in(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard.access, "_MOST_REMEMBERED", 2)
    monkeypatch.setattr(dashboard.access, "_typed", {})
    found = {}
    for browser in ("one", "two", "three"):
        monkeypatch.setattr(dashboard.access, "this_browser", lambda name=browser: name)
        assert try_key(0, READ_KEY) == ""
    for browser in ("one", "two", "three"):
        monkeypatch.setattr(dashboard.access, "this_browser", lambda name=browser: name)
        found[browser] = access(0).standing
    assert found == {
        "one": Standing.STRANGER,
        "two": Standing.VIEWER,
        "three": Standing.VIEWER,
    }


def test_a_server_without_admin_api_is_told_from_one_that_is_away(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch, closed_url: str
) -> None:
    monkeypatch.setenv(ADMIN_VARIABLE, "none")
    assert access(0).standing is Standing.ABSENT
    monkeypatch.setenv(ADMIN_VARIABLE, closed_url)
    assert access(0).standing is Standing.ABSENT
    monkeypatch.setattr(dashboard.access, "_seen", {closed_url})
    assert access(0).standing is Standing.ABSENT  # it needs a key, and this visitor has typed none
    remember_key(0, KEY)
    assert access(0).standing is Standing.AWAY


def test_the_last_figures_of_a_server_that_needs_no_key_are_for_all(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch, closed_url: str
) -> None:
    monkeypatch.delenv(ADMIN_KEY_VARIABLE)
    monkeypatch.setenv(ADMIN_VARIABLE, closed_url)
    monkeypatch.setattr(dashboard.access, "_seen", {closed_url})
    assert access(0).standing is Standing.AWAY


def test_servers_are_asked_at_the_same_time(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that hang must not delay what the others say."""
    together = threading.Barrier(2, timeout=30)  # broken if one is asked after the other

    def ask(url: str, key: str) -> tuple[Standing, str]:
        together.wait()
        return (Standing.VIEWER, "") if url == server.url else (Standing.ABSENT, "It hangs.")

    monkeypatch.setattr(dashboard.access, "_probes", Probes(ask, 60.0))
    monkeypatch.setenv(SERVERS_VARIABLE, "http://a:1 http://b:1 http://c:1")
    monkeypatch.setenv(ADMIN_VARIABLE, f"http://b:2 none {server.url}")
    found = accesses([0, 1, 2])
    assert [one.standing for one in found.values()] == [
        *(Standing.ABSENT, Standing.ABSENT, Standing.VIEWER)
    ]
    assert [one.problem for one in found.values()] == ["It hangs.", "", ""]


@contextmanager
def slow_server() -> Iterator[str]:
    """One that sends byte after byte of an answer that does not end."""
    ends = threading.Event()

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            for _ in range(3000):  # the page does not wait: it fails
                if ends.wait(0.01):
                    break
                connection.sendall(b"a")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ends.set()
            thread.join(30)


def test_a_server_that_sends_byte_after_byte_does_not_hold_a_page(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard.probes, "_MOST_SECONDS", 0.2)
    with slow_server() as url:
        monkeypatch.setenv(ADMIN_VARIABLE, url)
        assert access(0).problem == f"{url} did not respond in time."
        assert access(0).standing is Standing.ABSENT
        assert try_key(0, KEY) == f"{url} did not respond in time."


def test_a_key_that_cannot_be_sent_makes_a_stranger(server: AdminServer) -> None:
    remember_key(0, "schlüssel")
    found = access(0)
    assert found.standing is Standing.STRANGER
    assert "other than printable ASCII" in found.problem


def test_only_members_of_the_named_group_operate() -> None:
    assert is_operator(["staff", "ops"], "ops")
    assert not is_operator(["staff"], "ops")
    assert not is_operator([""], "")


@pytest.mark.parametrize(
    ("secrets", "is_used"),
    [(None, False), ("", False), ('[auth]\noperators = "ops"', True), ('[auth]\nx = "', None)],
)
def test_a_secrets_file_with_a_fault_does_not_open_the_dashboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secrets: str | None, is_used: bool | None
) -> None:
    file = tmp_path / "secrets.toml"
    if secrets is not None:
        file.write_text(secrets)
    before = st.get_option("secrets.files")
    monkeypatch.setattr(st, "secrets", Secrets())
    set_option("secrets.files", [str(file)])
    try:
        if is_used is None:
            with pytest.raises(FileNotFoundError, match="parsing secrets file"):
                uses_oidc()
        else:
            assert uses_oidc() is is_used
    finally:
        set_option("secrets.files", before)
