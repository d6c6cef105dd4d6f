"""Decides from messages and time whether a rank failed alone, or hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from engine.ranks.channel import Channel
from engine.ranks.hosts import JoinedHost
from engine.ranks.messages import (
    Arrived,
    Beat,
    FromRank,
    Loaded,
    RankFailed,
    RankProgress,
    RankSettled,
)
from engine.ranks.processes import RankProcess

RANK_TICK_SECONDS = 0.25  # between checks


@dataclass(frozen=True, slots=True)
class RankLimits:
    """Time limits in seconds, after which a suspicious state counts as failure."""

    silence: float = 15.0  # without a beat, once loaded: the process is frozen
    stall: float = 60.0  # in a step, without any rank beginning or ending a collective call
    loading_stall: float = 900.0  # while loading, without progress of any rank
    alone: float = 5.0  # a rank failed while loading, or because of others, and no other has failed
    settle: float = 10.0  # a failed step, until all ranks have reported their position
    leave: float = 1.0  # to end after being asked to
    exit: float = 5.0  # from the report of a failure until this process is killed


@dataclass(slots=True, eq=False)
class RankState:
    """Another rank. Written by the listening thread. ``host``: None for the leader's own."""

    number: int
    process: RankProcess
    channel: Channel[FromRank]
    heard: float
    has_arrived: bool = False
    has_loaded: bool = False
    calls: int = 0
    failed: RankFailed | None = None
    failed_at: float = 0.0
    settled: RankSettled | None = None
    loading: RankProgress | None = None
    host: JoinedHost | None = None

    @property
    def name(self) -> str:
        where = "" if self.host is None else f" on host {self.host.name}"
        return f"rank {self.number}{where}"

    def hear(self, message: FromRank, now: float) -> None:
        """Note what the rank says."""
        self.heard = now
        match message:
            case Arrived():
                self.has_arrived = True
            case Loaded():
                self.has_loaded = True
            case RankFailed():
                if self.failed is None:  # later failures may be consequences of the first
                    self.failed, self.failed_at = message, now
            case RankSettled():
                self.settled = message
            case Beat(calls):
                self.calls = calls
            case RankProgress():
                self.loading = message

    @property
    def failure(self) -> str | None:
        """Why it failed, unless another rank was the cause."""
        return None if self.failed is None or self.failed.by_others else self.describe_failure()

    def describe_failure(self) -> str:
        assert self.failed is not None
        where = "" if self.failed.step else " while loading"
        return f"{self.name} failed{where}: {self.failed.error}"


@dataclass(slots=True)
class OwnState:
    """What rank 0 itself is doing; written by the main thread."""

    step: int = 0
    is_busy: bool = True  # loading, or running a step
    is_settling: bool = False
    checks: int = 0
    calls: Callable[[], int] = field(default=lambda: 0)


class Watch:
    """Decides, tick by tick, whether a rank failed alone or hangs."""

    def __init__(self, limits: RankLimits, ranks: list[RankState], own: OwnState) -> None:
        self._limits = limits
        self._ranks = ranks
        self._own = own
        self._now = time.monotonic()
        self._progress: object = None
        self._progressed_at = self._now
        self._awake_since = self._now

    def verdict(self, now: float) -> str | None:
        """Return the reason why the ranks must end, or None."""
        if now - self._now > 20 * RANK_TICK_SECONDS:
            # This process itself was frozen (by a debugger, or with its container), and most likely
            # the others too: disregard what happened meanwhile.
            self._awake_since = self._progressed_at = now
        self._now = now
        return self._failure() or self._silence() or self._stall()

    def _failure(self) -> str | None:
        """A rank's failure in a step is not reported while rank 0 may still fail at the same
        place."""
        failures = [rank for rank in self._ranks if rank.failed is not None]
        failures.sort(key=lambda rank: rank.failed is not None and rank.failed.by_others)
        for rank in failures:
            failed = rank.failed
            assert failed is not None
            if not failed.step or failed.by_others:
                if self._now - rank.failed_at > self._limits.alone:
                    return rank.describe_failure()
            elif not self._own.is_settling and (
                self._own.step != failed.step
                or not self._own.is_busy
                or self._own.calls() > failed.calls
            ):
                return rank.describe_failure()
        return None

    def _silence(self) -> str | None:
        for rank in self._ranks:
            seconds = self._now - max(rank.heard, self._awake_since)
            if rank.has_loaded and seconds > self._limits.silence:
                return f"no sign of life from {rank.name} for {seconds:.0f} s"
        return None

    def _stall(self) -> str | None:
        calls = self._calls()
        progress = (
            self._own.step,
            self._own.is_busy,
            self._own.checks,
            calls,
            [(rank.has_arrived, rank.has_loaded, rank.loading) for rank in self._ranks],
        )
        if progress != self._progress or not self._own.is_busy:
            self._progress, self._progressed_at = progress, self._now
            return None
        seconds = self._now - self._progressed_at
        has_loaded = all(rank.has_loaded for rank in self._ranks)
        if seconds <= (self._limits.stall if has_loaded else self._limits.loading_stall):
            return None
        behind = min(calls, key=lambda number: calls[number])
        names = {0: "rank 0"} | {rank.number: rank.name for rank in self._ranks}
        who = "every rank" if len(set(calls.values())) == 1 else names[behind]
        where = f"in step {self._own.step}" if has_loaded else "while loading"
        told = ", ".join(f"rank {number}: {count}" for number, count in calls.items())
        return f"{who} hangs {where}, for {seconds:.0f} s (collective calls: {told})"

    def _calls(self) -> Mapping[int, int]:
        return {0: self._own.calls()} | {rank.number: rank.calls for rank in self._ranks}
