from __future__ import annotations

import asyncio

import pytest

from dashboard.fanout import follow
from dashboard.feeds import Feeds, feeds
from dashboard.settings import ADMIN_KEY_VARIABLE, ADMIN_VARIABLE, SERVERS_VARIABLE, Server
from tests.dashboard.admin_server import KEY, admin_server


async def test_those_who_ask_for_the_same_history_get_the_same_bytes() -> None:
    with admin_server() as server:
        known = Feeds([Server("http://a:1", server.url)], KEY)
        answers = await asyncio.gather(*(known.history(0, 15) for _ in range(5)))
        assert server.asked == ["/admin/v1/series?from=15m&step=3"]
    assert all(answer is answers[0] for answer in answers)


def test_the_first_key_that_works_is_kept() -> None:
    known = Feeds([Server("http://a:1", "http://a:2")], "")
    known.learn_key(0, "one")
    known.learn_key(0, "two")
    assert known.key(0) == "one"


async def test_a_key_that_the_server_no_longer_accepts_gives_way_to_the_next() -> None:
    with admin_server() as server:
        known = Feeds([Server("http://a:1", server.url)], "")
        known.learn_key(0, "of yesterday")
        messages = follow([known.fanout(0, kv=None)], 60)
        assert b"returned status 401" in await anext(messages)
        known.learn_key(0, KEY)
        assert b"overview" in await anext(messages)
        await messages.aclose()


def test_a_server_has_a_feed_for_the_maps_of_each_engine_and_one_without() -> None:
    known = Feeds([Server("http://a:1", "http://a:2")], "")
    assert known.fanout(0, kv=None) is known.fanout(0, kv=None)
    assert known.fanout(0, kv=None) is not known.fanout(0, kv=0)
    assert known.fanout(0, kv=0) is not known.fanout(0, kv=1)


def test_they_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVERS_VARIABLE, "http://a:1 http://b:1")
    monkeypatch.setenv(ADMIN_VARIABLE, "http://a:2 none")
    monkeypatch.setenv(ADMIN_KEY_VARIABLE, "k")
    assert feeds() is feeds()
    assert [server.admin for server in feeds().servers] == ["http://a:2", ""]
    assert feeds().key(1) == "k"
