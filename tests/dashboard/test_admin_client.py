from __future__ import annotations

import socket

import httpx
import pytest

from dashboard.admin_client import AdminClient, AdminRefusalError
from observability.admin_api import AdminScope
from tests.dashboard.admin_server import KEY, READ_KEY, admin_server


def test_the_overview_comes_with_what_the_key_may_do() -> None:
    with admin_server() as server:
        overview, scope = AdminClient(server.url, KEY).overview()
        assert (overview.running, scope) == (3, AdminScope.OPERATE)
        assert AdminClient(server.url, READ_KEY).overview()[1] is AdminScope.READ


def test_a_refusal_has_the_server_s_words() -> None:
    with admin_server() as server, pytest.raises(AdminRefusalError, match="key is wrong") as caught:
        AdminClient(server.url, "other").overview()
    assert caught.value.status == 401


def test_a_server_that_is_not_there_is_named(closed_url: str) -> None:
    with pytest.raises(AdminRefusalError, match="Could not connect") as caught:
        AdminClient(closed_url).overview()
    assert caught.value.status == 0


def test_a_server_that_hangs_is_awaited_for_as_long_as_is_set() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hung:
        url = f"http://127.0.0.1:{hung.getsockname()[1]}"
        with pytest.raises(AdminRefusalError, match="did not respond in time") as caught:
            AdminClient(url, timeout=httpx.Timeout(0.01, connect=10.0)).overview()
    assert caught.value.status == 0


@pytest.mark.parametrize("key", ["k\u200b", "schlüssel", "a\nb"])
def test_a_key_that_cannot_be_sent_is_refused_in_a_sentence(closed_url: str, key: str) -> None:
    with pytest.raises(AdminRefusalError, match="other than printable ASCII") as caught:
        AdminClient(closed_url, key).overview()
    assert caught.value.status == 401


def test_a_malformed_url_is_refused_in_a_sentence() -> None:
    with pytest.raises(AdminRefusalError, match=r"^http://\[::1 is not a valid URL: ") as caught:
        AdminClient("http://[::1").overview()
    assert caught.value.status == 0


def test_a_load_run_is_started_as_asked_and_stopped() -> None:
    with admin_server() as server:
        client = AdminClient(server.url, KEY)
        assert client.load().run is None
        assert client.load().profiles == {"chat": "short questions"}
        run = client.start_load("chat", 2.5, 10, 4)
        assert (run.profile, run.rate, run.seconds, run.concurrency) == ("chat", 2.5, 10, 4)
        assert client.load().run == run
        with pytest.raises(AdminRefusalError, match="in progress") as caught:
            client.start_load("chat", 2.5, 10, 4)
        assert caught.value.status == 409
        assert client.stop_load().state == "stopped"
