"""Messages between ranks arrive equal, and only in their own direction."""

from __future__ import annotations

import msgspec
import pytest

from engine.config import EngineConfig
from engine.ranks.messages import (
    Arrived,
    Beat,
    Begin,
    FromHost,
    FromRank,
    JoinHost,
    JoinRank,
    JoinRefused,
    Loaded,
    NewSequence,
    Planned,
    RankEnded,
    RankFailed,
    RankProgress,
    RankSettled,
    RankStep,
    Sample,
    SettleRank,
    ToHost,
    ToRank,
    Welcome,
)

CONFIG = EngineConfig(
    model="somewhere", dtype="bfloat16", max_model_len=77, threads=3, seed=2**63 - 1
)
STEP = RankStep(
    number=4,
    ahead=True,
    planned=[
        Planned(1, 2, 30, 4, True, 30, [5, -1], 2, [9]),
        Planned(2, 0, 0, 1, False, 0, [], 0, []),
    ],
    new=[NewSequence(2, 9, greedy=True, reports_prompt=False, embeds=True, plain=True)],
    forgotten=[7],
    clears_blocks=False,
)
TO_RANK: list[ToRank] = [
    Begin(config=CONFIG, rank=1, size=2, device=1, store="/run/store"),
    Begin(config=CONFIG, rank=3, size=4, device=1, store="", store_port=9, interface="eth0"),
    STEP,
    Sample(4, [1, 2]),
    SettleRank(),
]
FROM_RANK: list[FromRank] = [
    Arrived(),
    RankProgress("weights", 3, 2**40),
    Loaded(),
    RankFailed(4, 100, "ValueError: ä", by_others=True),
    RankSettled(100),
    Beat(101),
]

FROM_HOST: list[FromHost] = [JoinHost("b", "quire 1", 8), JoinRank("00ff", 3), RankEnded(3, -9)]
TO_HOST: list[ToHost] = [Welcome("00ff", 2, 2), JoinRefused("no")]


@pytest.mark.parametrize("message", TO_RANK, ids=lambda message: type(message).__name__)
def test_messages_from_rank_0_arrive_equal(message: ToRank) -> None:
    body = msgspec.msgpack.encode(message)
    assert msgspec.msgpack.decode(body, type=ToRank) == message
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(body, type=FromRank)


@pytest.mark.parametrize("message", FROM_RANK, ids=lambda message: type(message).__name__)
def test_messages_from_the_other_ranks_arrive_equal(message: FromRank) -> None:
    body = msgspec.msgpack.encode(message)
    assert msgspec.msgpack.decode(body, type=FromRank) == message
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(body, type=ToRank)


@pytest.mark.parametrize("message", FROM_HOST + TO_HOST, ids=lambda each: type(each).__name__)
def test_messages_of_hosts_arrive_equal_and_only_in_their_own_direction(
    message: FromHost | ToHost,
) -> None:
    here, there = (FromHost, ToHost) if message in FROM_HOST else (ToHost, FromHost)
    body = msgspec.msgpack.encode(message)
    assert msgspec.msgpack.decode(body, type=here) == message
    for other in (there, FromRank, ToRank):
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(body, type=other)


@pytest.mark.parametrize(
    "wrong",
    [
        JoinHost("b" * 254, "", 0),
        JoinHost("b", "r" * 201, 0),
        JoinHost("b", "", 4097),
        JoinRank("0" * 65, 1),
        RankEnded(1, 256),
        Welcome("", 0, 1),
        Welcome("", 1, 65),
        JoinRefused("x" * 1001),
    ],
)
def test_what_hosts_say_is_bounded(wrong: FromHost | ToHost) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(wrong), type=FromHost | ToHost)


@pytest.mark.parametrize(
    "wrong",
    [
        RankProgress("lunch", 1, 2),  # type: ignore[arg-type]
        RankProgress("weights", -1, 2),
        RankProgress("weights", 1, 2**53 + 1),
        RankFailed(1, 2**60, "", by_others=False),
        RankFailed(-1, 0, "", by_others=False),
        RankSettled(2**60),
        Beat(-1),
    ],
)
def test_what_ranks_say_is_bounded(wrong: FromRank) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(wrong), type=FromRank)
