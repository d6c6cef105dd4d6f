"""A rank follows rank 0's instructions, with a model whose KV cache checks itself."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest

from engine.config import EngineConfig
from engine.messages import SamplingParams
from engine.ranks.channel import Channel, encode_message
from engine.ranks.messages import Arrived, Begin, FromRank, RankFailed, RankStep, Sample, ToRank
from engine.ranks.rank import Follower, Rank
from engine.ranks.steps import StepWriter
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence, StepPlan
from tests.engine.checking_runner import CheckingRunner, continue_alone

GREEDY = SamplingParams(max_tokens=9, temperature=0.0)


class Part(CheckingRunner):
    """A rank's part of the model. It notes what it is asked to do."""

    def __init__(self) -> None:
        super().__init__(vocab_size=1000, ahead=True)
        self.cleared = 0

    def clear_blocks(self) -> None:
        self.cleared += 1

    @property
    def next_tokens(self) -> dict[int, int]:
        """By uid, what the last launched step chose."""
        assert self._last_launched is not None
        return self._last_launched.tokens


class Led:
    """A follower, and the sender of rank 0 before it."""

    def __init__(self) -> None:
        self.part, self.writer = Part(), StepWriter()
        self.follower = Follower(self.part)  # type: ignore[arg-type]  # replaces a ModelRunner

    def tell(self, *items: ScheduledSequence, ahead: bool, clears_blocks: bool = False) -> int:
        step = self.writer.write(StepPlan(items), ahead=ahead, clears_blocks=clears_blocks)
        told = msgspec.msgpack.decode(msgspec.msgpack.encode(step), type=ToRank)
        assert isinstance(told, RankStep)
        self.follower.run(told)
        return step.number


def sequence(uid: int, prompt: list[int], blocks: list[int]) -> Sequence:
    return Sequence(uid, "", list(prompt), len(prompt), GREEDY, block_table=blocks)


def test_a_launched_step_samples_on_request_and_not_for_skipped_sequences() -> None:
    led = Led()
    items = [
        ScheduledSequence(sequence(uid, [uid, 2, 3], [uid]), 0, 3, completes=True)
        for uid in (1, 2, 3)
    ]
    number = led.tell(*items, ahead=True)
    assert led.part.next_tokens == {}
    led.follower.sample(Sample(number, [2]))
    assert led.part.next_tokens == {uid: continue_alone([uid, 2, 3], 1, 1000)[0] for uid in (1, 3)}


def test_a_host_that_has_another_model_under_the_path_does_not_load_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "config.json").write_text("{}")
    ours, theirs = socket.socketpair()
    begin = Begin(
        config=EngineConfig(model=str(tmp_path), device="cpu"),
        rank=1,
        size=2,
        device=0,
        store="",
        store_port=1,
        model_files="another's",
    )
    leader: Channel[FromRank] = Channel(ours, FromRank)
    leader.send(encode_message(begin))
    assert Rank(Channel(theirs, ToRank), "127.0.0.1").run() == 1
    assert leader.receive() == Arrived()
    said = f"ModelError: the files of {tmp_path} are not those that the leader has under this path"
    assert leader.receive() == RankFailed(0, 0, said, False)
    assert said.replace("ModelError", "rank 1 cannot load the model") in caplog.text
    for channel in (ours, theirs):
        channel.close()


def test_only_the_step_launched_last_can_be_sampled() -> None:
    led = Led()
    item = ScheduledSequence(sequence(1, [1, 2], [0]), 0, 2, completes=True)
    number = led.tell(item, ahead=True)
    with pytest.raises(ValueError, match=f"step {number + 1} was not launched last, but {number}"):
        led.follower.sample(Sample(number + 1, []))


def test_ended_sequences_are_dropped_and_blocks_cleared_before_the_plan_runs() -> None:
    led = Led()
    first, second = sequence(1, [1, 2], [0]), sequence(2, [4, 5], [1])
    led.tell(ScheduledSequence(first, 0, 2, completes=True), ahead=False)
    assert (led.part.forgotten, led.part.cleared) == ([], 0)
    led.writer.forget(1)
    item = ScheduledSequence(second, 0, 2, completes=True)
    led.tell(item, ahead=False, clears_blocks=True)
    assert (led.part.forgotten, led.part.cleared) == ([1], 1)
    assert [plan.num_tokens for plan in led.part.plans] == [2, 2]


def test_a_rank_whose_channel_ends_before_it_began_ends_well() -> None:
    ours, theirs = socket.socketpair()
    leader: Channel[FromRank] = Channel(ours, FromRank)
    leader.shutdown()
    rank = Rank(Channel(theirs, ToRank))
    assert rank.run() == 0
    theirs.close()
    assert leader.receive() == Arrived()
    assert leader.receive() is None
    leader.close()
