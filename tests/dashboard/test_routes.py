from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from dashboard.fanout import Unread
from dashboard.feed_token import issue
from dashboard.feeds import feeds
from dashboard.routes import MOST_BROWSERS, ROUTES, channel_of
from dashboard.settings import ADMIN_KEY_VARIABLE, ADMIN_VARIABLE, SERVERS_VARIABLE
from tests.dashboard.admin_server import KEY, admin_server


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    with admin_server() as server:
        monkeypatch.setenv(SERVERS_VARIABLE, "http://a:1")
        monkeypatch.setenv(ADMIN_VARIABLE, server.url)
        monkeypatch.setenv(ADMIN_KEY_VARIABLE, KEY)
        with TestClient(Starlette(routes=ROUTES)) as client:
            yield client


def token(channel: str) -> dict[str, str]:
    return {"token": issue(channel, time.time())}


def test_the_history_is_the_server_s(client: TestClient) -> None:
    reply = client.get("/history/0/0/5", params=token("0"))
    assert (reply.status_code, reply.json()["start"]) == (200, 1.0)
    assert reply.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("0.kv0/prefixes", "kv/prefixes?limit=100"),
        ("0.kv0/times", "kv/times"),
        ("0.kv0/at/9.5", "kv?at=9.5"),
        ("0.kv1/prefixes", "kv/prefixes?limit=100&engine=1"),
        ("0.kv1/times", "kv/times?engine=1"),
        ("0.kv1/at/9.5", "kv?at=9.5&engine=1"),
    ],
)
def test_kv_figures_are_those_of_the_server_s_engine(
    client: TestClient, path: str, asked: str
) -> None:
    reply = client.get(f"/kv/{path}", params=token(path.partition("/")[0]))
    assert (reply.status_code, reply.json()) == (200, {"asked": asked})


def test_a_server_that_does_not_answer_is_said(client: TestClient) -> None:
    assert client.get("/kv/0.kv0/at/404", params=token("0.kv0")).status_code == 502


def test_a_key_that_cannot_be_sent_is_no_error_of_the_dashboard(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ADMIN_KEY_VARIABLE, "schlüssel")
    assert client.get("/kv/0.kv0/times", params=token("0.kv0")).status_code == 502
    assert client.get("/history/0/0/5", params=token("0")).json()["values"] == {}


@pytest.mark.parametrize(
    ("path", "channel"),
    [
        ("/feed/0", "1"),
        ("/feed/0", "0.kv0"),
        ("/history/0/0/5", "1"),
        ("/history/0/1/5", "0"),
        ("/history/0/0/7", "0"),
        ("/kv/0/prefixes", "0"),
        ("/kv/0.kv0/times", "0"),
        ("/kv/0.kv0/at/9.0", "1.kv0"),
        ("/kv/0.kv1/times", "0.kv0"),
    ],
)
def test_nothing_is_given_without_the_right_token(
    client: TestClient, path: str, channel: str
) -> None:
    assert client.get(path).status_code == 403
    assert client.get(path, params=token(channel)).status_code == 403


def test_a_full_feed_says_so(client: TestClient) -> None:
    fanout = feeds().fanout(0, kv=None)
    browsers = {Unread() for _ in range(MOST_BROWSERS)}
    fanout._browsers |= browsers
    reply = client.get("/feed/0", params=token("0"))
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "30")
    fanout._browsers -= browsers


def test_channels_are_told_apart() -> None:
    assert channel_of([0, 2]) == "0-2"
    assert channel_of([0], kv=1) == "0.kv1"
