from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

import dashboard.fanout
from dashboard.fanout import Fanout, Unread, follow
from tests.dashboard.admin_server import KEY, AdminServer, admin_server


@pytest.fixture
def server() -> Iterator[AdminServer]:
    with admin_server() as running:
        yield running


def data_of(message: bytes) -> dict[str, object]:
    event, data = message.strip().split(b"\n")
    assert event == b"event: s3"
    decoded: dict[str, object] = msgspec.json.decode(data.removeprefix(b"data: "))
    return decoded


async def first(fanout: Fanout) -> bytes:
    messages = follow([fanout], 60)
    message = await anext(messages)
    await messages.aclose()
    return message


async def test_many_browsers_are_served_by_one_connection(server: AdminServer) -> None:
    fanout = Fanout(3, server.url, lambda: KEY)
    readers = [follow([fanout], 60) for _ in range(20)]
    got = await asyncio.gather(*(anext(reader) for reader in readers))
    assert len(fanout) == 20
    assert len(set(got)) == 1
    assert data_of(got[0])["overview"]
    assert server.asked == ["/admin/v1/feed"]
    for reader in readers:
        await reader.aclose()
    assert len(fanout) == 0


async def test_one_who_comes_later_gets_the_newest_message_at_once(server: AdminServer) -> None:
    fanout = Fanout(3, server.url, lambda: KEY)
    reader = follow([fanout], 60)
    message = await anext(reader)
    assert await first(fanout) is message
    await reader.aclose()
    assert fanout.connections == 1


async def test_nothing_is_read_once_the_time_is_over(server: AdminServer) -> None:
    fanout = Fanout(3, server.url, lambda: KEY)
    assert [message async for message in follow([fanout], 0)] == []
    assert len(fanout) == 0


async def test_signs_of_life_are_sent_where_there_is_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And a feed in which nothing comes ends in time."""
    monkeypatch.setattr(dashboard.fanout, "_ALIVE_SECONDS", 0.01)
    assert {message async for message in follow([], 0.05)} == {b"event: alive\ndata: 1\n\n"}


async def test_the_map_is_only_asked_for_by_those_who_draw_it(server: AdminServer) -> None:
    found = await first(Fanout(3, server.url, lambda: KEY, kv=0))
    assert server.asked == ["/admin/v1/feed?kv=1"]
    assert data_of(found) == {"kv": {"blocks": 4}}  # without the overview that came before it


async def test_browsers_are_told_why_there_is_no_feed(server: AdminServer, closed_url: str) -> None:
    assert data_of(await first(Fanout(3, closed_url, str))) == {
        "away": f"Could not connect to {closed_url}."
    }
    assert data_of(await first(Fanout(3, server.url, lambda: "schlüssel"))) == {
        "away": "The API key contains characters other than printable ASCII."
    }
    assert "401" in str(data_of(await first(Fanout(3, server.url, str)))["away"])


async def test_a_browser_that_does_not_read_keeps_the_newest_messages(server: AdminServer) -> None:
    fanout = Fanout(3, server.url, lambda: KEY)
    browser = Unread()
    fanout.join(browser)
    for number in range(50):
        fanout._send(b"data: %d" % number)
    fanout.close()
    read = [await browser.get() for _ in range(9)]
    assert read == [*(b"event: s3\ndata: %d\n\n" % number for number in range(42, 50)), None]


async def test_servers_that_send_at_the_same_moment_do_not_displace_one_another(
    server: AdminServer,
) -> None:
    """They take turns: one that sends more does not delay the others."""
    fanouts = [Fanout(index, server.url, lambda: KEY) for index in range(40)]
    browser = Unread()
    for fanout in fanouts:
        fanout.join(browser)
    for number in range(2):
        for fanout in fanouts:
            fanout._send(b"data: %d" % number)
    fanouts[0]._send(b"data: 2")
    for fanout in fanouts:
        fanout.close()
    sent = [(index, number) for number in range(2) for index in range(40)] + [(0, 2)]
    read = [await browser.get() for _ in range(82)]
    assert read == [*(b"event: s%d\ndata: %d\n\n" % one for one in sent), None]


async def test_closing_ends_the_feed_of_every_browser(server: AdminServer) -> None:
    fanout = Fanout(3, server.url, lambda: KEY)
    readers = [follow([fanout], 60) for _ in range(3)]
    for reader in readers:
        await anext(reader)
    fanout.close()
    for reader in readers:
        assert [message async for message in reader] == []
    assert len(fanout) == 0
