"""``python -m engine.ranks.rank``: a rank other than rank 0, which sends it everything it needs
(``engine.ranks.messages``). Rank 0 starts it, or ``engine.ranks.join`` on another host. It ends
when these do, or rank 0 closes the channel.

It runs each step as rank 0 does, with its own part of weights and KV cache, but samples nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import cast

import torch

from engine.architecture.errors import ModelError
from engine.lifetime import die_with_parent, watch_parent
from engine.ranks.channel import Channel, encode_message
from engine.ranks.messages import (
    Arrived,
    Beat,
    Begin,
    FromRank,
    Loaded,
    LoadingPhase,
    RankFailed,
    RankProgress,
    RankSettled,
    RankStep,
    Sample,
    SettleRank,
    ToRank,
)
from engine.ranks.model_files import model_fingerprint
from engine.ranks.ranks import RANK_BEAT_SECONDS
from engine.ranks.steps import StepReader
from engine.run.assembly import load_model_runner
from engine.run.model_runner import ModelRunner
from engine.sharding.collectives import CollectiveError, Group, Meeting
from engine.sharding.shard import Shard
from engine.step.step import StepUnderWay
from observability.logging import configure
from observability.stacks import write_stacks_on_sigusr1

_log = logging.getLogger(__name__)

_MOST_TEXT = 10_000  # characters of an error; rank 0 reads no message of any length


class Follower:
    """Runs rank 0's steps on this rank's part of the model."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self._reader = StepReader()
        self._launched: tuple[int, StepUnderWay] | None = None

    def run(self, step: RankStep) -> None:
        runner = self._runner
        for uid in step.forgotten:
            runner.forget(uid)
        if step.clears_blocks:
            runner.clear_blocks()
        plan = self._reader.read(step)
        if not step.ahead:
            runner.execute(plan)
            return
        assert runner.launch is not None
        self._launched = step.number, runner.launch(plan)

    def sample(self, sample: Sample) -> None:
        assert self._launched is not None
        number, launched = self._launched
        if number != sample.number:
            raise ValueError(f"step {sample.number} was not launched last, but {number}")
        launched.sample(frozenset(sample.skipped))


class Rank:
    """The main program of a rank: it loads, runs steps, and ends with its channel. ``leader``:
    where rank 0's host is reached, if there are several."""

    def __init__(self, channel: Channel[ToRank], leader: str = "") -> None:
        self._channel = channel
        self._leader = leader
        self._group: Group | None = None
        self._step = 0

    def run(self) -> int:
        """Return the exit status: 0, or 1 if the model cannot be loaded."""
        self._tell(Arrived())
        begin = self._channel.receive()
        if begin is None:
            return 0
        assert isinstance(begin, Begin)
        threading.Thread(target=self._beat, name="rank-beat", daemon=True).start()
        try:
            runner = self._load(begin)
        except Exception as error:
            self._failed(error)
            if self._leader and not isinstance(error, CollectiveError):
                # On another host this is the only log.
                _log.error("rank %d cannot load the model: %s", begin.rank, error)
            return 1
        self._tell(Loaded())
        gc.collect()
        gc.freeze()
        self._serve(runner)
        if self._group is not None:
            self._group.close()
        return 0

    def _load(self, begin: Begin) -> ModelRunner:
        if begin.config.device == "cuda":
            torch.cuda.set_device(begin.device)
            device = torch.device("cuda", begin.device)
        else:
            device = torch.device("cpu")
        model = begin.config.model
        if begin.model_files and model_fingerprint(Path(model)) != begin.model_files:
            raise ModelError(
                f"the files of {model} are not those that the leader has under this path"
            )
        shard = Shard(begin.rank, begin.size)
        if begin.store_port:
            meeting = Meeting.at(self._leader, begin.store_port, begin.interface)
        else:
            meeting = Meeting.on_one_host(Path(begin.store))
        self._group = Group(shard, device, meeting, symmetric_memory=begin.config.symmetric_memory)
        return load_model_runner(
            begin.config,
            self._on_progress,
            self._group,
        )

    def _on_progress(self, phase: str, done: int, total: int) -> None:
        self._tell(RankProgress(cast(LoadingPhase, phase), done, total))

    def _serve(self, runner: ModelRunner) -> None:
        follower = Follower(runner)
        while (message := self._channel.receive()) is not None:
            try:
                match message:
                    case RankStep():
                        self._step = message.number
                        follower.run(message)
                    case Sample():
                        follower.sample(message)
                    case SettleRank():
                        self._tell(RankSettled(self._calls))
            except Exception as error:
                self._failed(error)

    @property
    def _calls(self) -> int:
        return 0 if self._group is None else self._group.calls

    def _failed(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        by_others = isinstance(error, CollectiveError)
        _log.debug("step %d failed", self._step, exc_info=error)
        self._tell(RankFailed(self._step, self._calls, text[:_MOST_TEXT], by_others))

    def _beat(self) -> None:
        while True:
            time.sleep(RANK_BEAT_SECONDS)
            self._tell(Beat(self._calls))

    def _tell(self, message: FromRank) -> None:
        # If rank 0 no longer reads, it has ended, or is about to end this process.
        with contextlib.suppress(OSError):
            self._channel.send(encode_message(message))


def main(argv: list[str]) -> int:
    write_stacks_on_sigusr1()
    parser = argparse.ArgumentParser(prog="python -m engine.ranks.rank", description=__doc__)
    parser.add_argument("--rank", type=int, required=True, help="for people who list processes")
    parser.add_argument("--parent", type=int, required=True, help="process id of what started it")
    parser.add_argument("--channel", type=int, required=True, help="descriptor of a socket")
    parser.add_argument("--leader", default="", help="address of rank 0's host")
    parser.add_argument("--log-format", choices=["auto", "json", "console"], default="auto")
    parser.add_argument("--log-level", default="info")
    options = parser.parse_args(argv)
    die_with_parent(options.parent)
    watch_parent(lambda: os._exit(1), options.parent)
    configure(
        log_format=options.log_format,
        level=options.log_level,
        process=f"engine rank {options.rank}",
    )
    channel: Channel[ToRank] = Channel(socket.socket(fileno=options.channel), ToRank)
    return Rank(channel, options.leader).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
