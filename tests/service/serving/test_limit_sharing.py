"""Replicas that share their limits admit the limit together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs

from service.api_keys import api_keys
from service.errors import LimitError, RequestLimitError, StoreUnavailableError, TokenLimitError
from service.serving.keys import KeyRing
from service.serving.limit_sharing import LimitSharing
from service.serving.metering import Metering
from service.tenants.caller import Caller
from service.tenants.limit_ledger import MinuteUse
from service.tenants.stored_key import KeyGrant, new_key

GRANT = KeyGrant(alias="team", requests_per_minute=5, tokens_per_minute=1000, concurrent_requests=4)
TEAM = Caller(owner="ab", alias="team", limits=GRANT.limits)


class Exchange:
    """What ``LimitStore`` does, without a database."""

    def __init__(self) -> None:
        self.used: dict[str, Mapping[str, MinuteUse]] = {}
        self.is_away = False

    async def exchange(self, replica: str, used: Mapping[str, MinuteUse]) -> dict[str, MinuteUse]:
        if self.is_away:
            raise StoreUnavailableError("away")
        self.used[replica] = used
        [*others] = (use for name, use in self.used.items() if name != replica)
        return {alias: use for each in others for alias, use in each.items()}


def ring() -> KeyRing:
    keys = KeyRing(api_keys([]))
    keys.replace([new_key(GRANT)[0]])
    return keys


def replica(source: Exchange) -> tuple[Metering, LimitSharing]:
    metering = Metering()
    return metering, LimitSharing(metering, ring(), source, lambda: True)


async def test_what_another_replica_admitted_counts_here() -> None:
    source = Exchange()
    (one, sharing_one), (two, sharing_two) = replica(source), replica(source)
    for _ in range(3):
        use = one.enter(TEAM)
        assert use is not None
        one.take(use, 200)
    await sharing_one.exchange()
    assert two.state(TEAM).requests_left == 5
    await sharing_two.exchange()
    assert two.state(TEAM).requests_left == 2
    assert two.state(TEAM).tokens_left == 400
    use = two.enter(TEAM)
    assert use is not None
    with pytest.raises(TokenLimitError, match="600 are used"):
        two.take(use, 401)
    with pytest.raises(RequestLimitError, match="4 requests of this key are in progress"):
        two.enter(TEAM)


async def test_of_many_tenants_all_are_reported_and_those_without_limits_here_not_noted() -> None:
    source = Exchange()
    (one, sharing_one), (two, sharing_two) = replica(source), replica(source)
    aliases = [f"tenant-{number}" for number in range(150)]
    for alias in (*aliases, "team"):
        assert one.enter(Caller(alias=alias, limits=GRANT.limits))
    await sharing_one.exchange()
    assert source.used[one.ledger.memory.identity].keys() == {*aliases, "team"}
    await sharing_two.exchange()
    assert two.ledger.memory.aliases() == ["team"]


@pytest.mark.parametrize(
    ("leads", "limits", "shares"),
    [
        (True, {"requests_per_minute": 5}, True),
        (False, {"requests_per_minute": 5}, False),
        (True, {"tokens_per_day": 5}, False),  # which comes from the usage
        (True, {}, False),
    ],
    ids=["leads", "follows", "budget", "unlimited"],
)
async def test_only_the_leading_worker_shares_and_only_if_there_is_something_to_share(
    leads: bool, limits: dict[str, int], shares: bool
) -> None:
    source, keys, heard = Exchange(), KeyRing(api_keys([])), asyncio.Event()
    keys.replace([new_key(KeyGrant(alias="team", **limits))[0]])  # type: ignore[arg-type]
    sharing = LimitSharing(
        Metering(), keys, source, lambda: leads, seconds=0.0, on_alone=lambda alone: heard.set()
    )
    running = asyncio.create_task(sharing.run())
    await asyncio.wait_for(heard.wait(), 10)
    running.cancel()
    assert bool(source.used) == shares


async def test_nothing_is_left_of_what_the_others_no_longer_report() -> None:
    source = Exchange()
    (one, sharing_one), (two, sharing_two) = replica(source), replica(source)
    for _ in range(4):
        assert one.enter(TEAM)
    await sharing_one.exchange()
    await sharing_two.exchange()
    with pytest.raises(LimitError):
        two.enter(TEAM)
    source.used.clear()
    await sharing_two.exchange()
    assert two.enter(TEAM)


async def test_all_workers_of_a_server_are_one_replica() -> None:
    source = Exchange()
    metering, sharing = replica(source)
    again = LimitSharing(metering, ring(), source, lambda: True)
    assert metering.enter(TEAM)
    await sharing.exchange()
    await again.exchange()
    assert metering.state(TEAM).requests_left == 4


class AwayAtFirst(Exchange):
    """Does not respond to the first exchange. ``done`` is set by the third."""

    def __init__(self) -> None:
        super().__init__()
        self.exchanges = 0
        self.done = asyncio.Event()

    async def exchange(self, replica: str, used: Mapping[str, MinuteUse]) -> dict[str, MinuteUse]:
        self.exchanges += 1
        if self.exchanges == 3:
            self.done.set()
        self.is_away = self.exchanges == 1
        return await super().exchange(replica, used)


async def test_while_the_database_is_away_each_replica_counts_alone() -> None:
    source = AwayAtFirst()
    heard: list[bool] = []
    sharing = LimitSharing(
        Metering(), ring(), source, lambda: True, seconds=0.001, on_alone=heard.append
    )
    with capture_logs() as lines:
        task = asyncio.create_task(sharing.run())
        await asyncio.wait_for(source.done.wait(), 30)
        async with asyncio.timeout(30):
            while len(lines) < 2:  # the second line follows an exchange
                await asyncio.sleep(0)
        task.cancel()
    first, second = (line["event"] for line in lines)
    assert first.startswith("limits are not shared with other replicas: their last figures count")
    assert second == "limits are shared with other replicas again"
    assert heard[:2] == [True, False]
