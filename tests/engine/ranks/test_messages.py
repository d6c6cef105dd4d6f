"""Messages between ranks arrive equal, and only in their own direction."""

from __future__ import annotations

import msgspec
import pytest

from engine.config import EngineConfig
from engine.ranks.messages import (
    Arrived,
    Beat,
    Begin,
    FromRank,
    Loaded,
    NewSequence,
    Planned,
    RankFailed,
    RankProgress,
    RankSettled,
    RankStep,
    Sample,
    SettleRank,
    ToRank,
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
    Begin(config=CONFIG, rank=1, size=2, store="/run/store"),
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
