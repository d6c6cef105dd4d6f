"""Rank 0's control of the other ranks: starts their processes, communicates with them, and notices
when one ends, fails or hangs. Then it ends all of them and reports the reason once. Does not import
torch.

A thread listens to the ranks. On a failure it logs the cause, kills the ranks and calls
``on_failure``; the main thread gets RankFailedError at its next call here, or when the collective
it is waiting in fails. If the main thread does not return, the process is ended.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from engine.config import EngineConfig
from engine.ranks.channel import MAX_REPORT_BYTES, Channel, encode_message
from engine.ranks.hosts import Hosts, JoinedHost, RemoteProcess
from engine.ranks.messages import (
    Begin,
    FromRank,
    RankProgress,
    RankStep,
    Sample,
    SettleRank,
)
from engine.ranks.model_files import model_fingerprint
from engine.ranks.processes import RANK_MODULE, describe_end, start_rank
from engine.ranks.watch import RANK_TICK_SECONDS, OwnState, RankLimits, RankState, Watch
from engine.step.step import DeviceLostError

_log = logging.getLogger(__name__)

RANK_BEAT_SECONDS = 1.0

OnRankProgress = Callable[[int, str, int, int], None]  # rank, phase, done, total


class RankFailedError(DeviceLostError):
    """A rank ended, failed or hangs; the message says which and why."""


class Ranks:
    """Ranks 1 to ``size`` - 1. A context manager: after it, none of them is running.

    ``on_failure(reason)`` is called from another thread, at most once. ``arguments`` are
    passed to each rank's process in addition to its own. With ``hosts``, which are closed with the
    ranks, only the first ranks are started here; the constructor waits until the other hosts have
    joined with theirs.
    """

    def __init__(
        self,
        size: int,
        *,
        on_failure: Callable[[str], None] = lambda reason: None,
        arguments: tuple[str, ...] = (),
        limits: RankLimits | None = None,
        module: str = RANK_MODULE,
        hosts: Hosts | None = None,
    ) -> None:
        self.size = size
        self.hosts = hosts
        self._limits = limits or RankLimits()
        self._on_failure = on_failure
        self._on_progress: OnRankProgress = lambda rank, phase, done, total: None
        self._changed = threading.Condition()
        self._cause: str | None = None
        self._is_closing = False
        self._own = OwnState()
        self._exit_timer: threading.Timer | None = None
        self._directory = Path(tempfile.mkdtemp(prefix="quire-ranks-"))
        self._ranks: list[RankState] = []
        try:
            _start_all(self._ranks, size, module, arguments, hosts, self._lost_host)
        except BaseException:
            self._end_all(0)
            if hosts is not None:
                hosts.close()
            raise
        self._thread = threading.Thread(target=self._listen, name="engine-ranks", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def store(self) -> Path:
        """The file through which the ranks find each other; only this user can access it."""
        return self._directory / "store"

    @property
    def pids(self) -> list[int]:
        """The process ids of the other ranks on this host."""
        local = (rank.process for rank in self._ranks)
        return [process.pid for process in local if isinstance(process, subprocess.Popen)]

    # --- called from the main thread -----------------------------------------------------------

    def begin(
        self, config: EngineConfig, on_progress: OnRankProgress, *, store_port: int = 0
    ) -> None:
        """Wait until all have started, and make them load their parts; ``on_progress`` is called
        from the listening thread. ``store_port``: where they find each other, with several hosts.
        Raises RankFailedError, or DeviceError if a host has too few GPUs."""
        self._on_progress = on_progress
        self._wait(lambda rank: rank.has_arrived, "did not start", self._limits.loading_stall)
        if self.hosts is not None:
            self.hosts.check_devices(config)
        # Read once, for all ranks of other hosts.
        model_files = "" if self.hosts is None else model_fingerprint(Path(config.model))
        for rank in self._ranks:
            begin = _begin(config, rank, self.size, self.store, self.hosts, store_port, model_files)
            self._send(rank, encode_message(begin))

    def count_calls_by(self, calls: Callable[[], int]) -> None:
        """``calls()``: returns how many collective calls rank 0 has begun."""
        self._own.calls = calls

    def await_loaded(self) -> None:
        """Wait until all have loaded. Raises RankFailedError."""
        self._wait(
            lambda rank: rank.has_loaded or rank.failure is not None,
            "did not load",
            self._limits.loading_stall,
        )
        self._fail_by_known()
        self.check()
        self._own.is_busy = False

    def step(self, step: RankStep) -> None:
        """Make all ranks begin a step. Raises RankFailedError."""
        self.check()
        self._own.step, self._own.is_busy = step.number, True
        self._send_all(step)

    def sample(self, sample: Sample) -> None:
        """Make all ranks sample a launched step's tokens. Raises RankFailedError."""
        self.check()
        self._own.is_busy = True
        self._send_all(sample)

    def work(self) -> None:
        """Record that rank 0 is waiting for a result that involves all ranks."""
        self._own.is_busy = True

    def rest(self) -> None:
        """Record that rank 0 has finished its part of the joint work."""
        self._own.is_busy = False

    def check(self) -> None:
        """Raise RankFailedError if a rank has failed. While rank 0 loads, regular calls show
        progress."""
        self._own.checks += 1
        if self._cause is not None:
            raise RankFailedError(self._cause)

    def settle(self, error: Exception) -> None:
        """Handle a step that raised ``error`` in rank 0. Returns if all ranks are in the same
        position, so that another step may follow; otherwise raises RankFailedError."""
        self._own.is_settling = True
        for rank in self._ranks:
            rank.settled = None
        self._send_all(SettleRank())
        text = f"rank 0 failed in a step, and the others did not: {_describe(error)}"
        self._wait(lambda rank: rank.settled is not None, "", self._limits.settle, text)
        calls = self._own.calls()
        for rank in self._ranks:
            assert rank.settled is not None
            if rank.settled.calls != calls:
                self._fail(text)
                self.check()
            rank.failed = None
        self._own.is_busy = self._own.is_settling = False

    def lost(self, error: Exception) -> RankFailedError:
        """Return the reason why a collective failed in rank 0, as soon as it is known."""
        deadline = time.monotonic() + self._limits.alone + 1.0
        with self._changed:
            while self._cause is None and not any(rank.failure for rank in self._ranks):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
        self._fail_by_known()
        if self._cause is None:
            self._fail(_describe(error))
        return RankFailedError(self._cause or _describe(error))

    def close(self) -> None:
        """End all ranks, gracefully if they have loaded. Closing again does nothing."""
        with self._changed:
            if self._is_closing:
                return
            self._is_closing = True
        if self._exit_timer is not None:
            self._exit_timer.cancel()
        gently = self._cause is None and not self._own.is_busy
        self._end_all(self._limits.leave if gently else 0)
        self._thread.join()
        for rank in self._ranks:
            rank.channel.close()
        if self.hosts is not None:
            self.hosts.close()

    # --- inside --------------------------------------------------------------------------------

    def _send_all(self, message: RankStep | Sample | SettleRank) -> None:
        frame = encode_message(message)
        for rank in self._ranks:
            self._send(rank, frame)

    def _send(self, rank: RankState, frame: bytes) -> None:
        try:
            rank.channel.send(frame)
        except OSError as error:
            raise self.lost(error) from error

    def _wait(
        self,
        condition: Callable[[RankState], bool],
        what: str,
        seconds: float,
        otherwise: str = "",
    ) -> None:
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._cause is None:
                late = [rank for rank in self._ranks if not condition(rank)]
                if not late:
                    return
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
        if self._cause is None:
            self._fail(otherwise or f"{late[0].name} {what} within {seconds:.0f} s")
        self.check()

    def _fail_by_known(self) -> None:
        """Report a rank's failure that was deferred in case rank 0 fails at the same place."""
        for rank in self._ranks:
            if self._cause is None and rank.failure is not None:
                self._fail(rank.failure)

    def _end_all(self, gently_seconds: float) -> None:
        deadline = time.monotonic() + gently_seconds
        for rank in self._ranks:
            if gently_seconds:
                rank.channel.shutdown()
            else:
                rank.process.kill()
        for rank in self._ranks:
            try:
                rank.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                rank.process.kill()
                rank.process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _lost_host(self, host: JoinedHost) -> None:
        if not self._is_closing:
            self._fail(host.loss)

    def _fail(self, cause: str) -> None:
        """Only the first cause is recorded."""
        with self._changed:
            if self._cause is not None or self._is_closing:
                return
            self._cause = cause
            # Before it becomes known, so that a subsequent ``close`` finds the timer to cancel.
            self._exit_timer = threading.Timer(self._limits.exit, self._exit)
            self._exit_timer.daemon = True
            self._exit_timer.start()
            self._changed.notify_all()
        _log.error("%s; all ranks end", cause)
        for rank in self._ranks:
            rank.process.kill()
        self._on_failure(cause)

    def _exit(self) -> None:
        """The main thread hangs in a collective that does not fail when the other ranks end."""
        shutil.rmtree(self._directory, ignore_errors=True)
        os._exit(1)

    # --- the listening thread ------------------------------------------------------------------

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            for rank in self._ranks:
                selector.register(rank.channel, selectors.EVENT_READ, rank)
            watch = Watch(self._limits, self._ranks, self._own)
            while not self._is_closing:
                for key, _ in selector.select(RANK_TICK_SECONDS):
                    if not self._take(key.data):
                        selector.unregister(key.fileobj)
                cause = watch.verdict(time.monotonic())
                if cause is not None:
                    self._fail(cause)

    def _take(self, rank: RankState) -> bool:
        """Process messages from a rank. False at the end."""
        try:
            messages = rank.channel.read()
            for message in messages or ():
                self._hear(rank, message)
        except Exception as error:  # whatever another host sends, this thread must not end
            self._fail(f"{rank.name} sent what no rank sends: {_describe(error)}")
            return False
        if messages is None:
            self._ended(rank)
        return messages is not None

    def _hear(self, rank: RankState, message: FromRank) -> None:
        with self._changed:
            rank.hear(message, time.monotonic())
            self._changed.notify_all()
        if isinstance(message, RankProgress):
            self._on_progress(rank.number, message.phase, message.done, message.total)

    def _ended(self, rank: RankState) -> None:
        if self._is_closing or self._cause is not None:
            return
        if rank.failed is not None and rank.failed.step == 0:
            return  # it has reported why, and rank 0 may be about to report the same
        with contextlib.suppress(subprocess.TimeoutExpired):
            rank.process.wait(self._limits.leave)
        if rank.host is not None and rank.host.is_gone:
            self._fail(rank.host.loss)
        self._fail(f"{rank.name} {describe_end(rank.process.poll())}")


def _start(number: int, module: str, arguments: tuple[str, ...]) -> RankState:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with theirs:
        process = start_rank(number, theirs, os.environ, arguments, module)
    _log.info("rank %d is process %d", number, process.pid)
    return RankState(number, process, Channel(ours, FromRank), time.monotonic())


def _start_all(
    ranks: list[RankState],
    size: int,
    module: str,
    arguments: tuple[str, ...],
    hosts: Hosts | None,
    on_lost: Callable[[JoinedHost], None],
) -> None:
    """Add all to ``ranks``: those here, then those of other hosts, which are waited for."""
    own = size if hosts is None else hosts.each
    if hosts is not None:
        arguments = (f"--leader={hosts.address}", *arguments)
    # One by one: if one cannot be started, those before it are ended.
    ranks.extend(_start(number, module, arguments) for number in range(1, own))
    if hosts is not None:
        ranks += _joined(hosts.gather(on_lost))


def _begin(
    config: EngineConfig,
    rank: RankState,
    size: int,
    store: Path,
    hosts: Hosts | None,
    store_port: int,
    model_files: str,
) -> Begin:
    is_here = rank.host is None
    return Begin(
        config=config,
        rank=rank.number,
        size=size,
        device=rank.number if hosts is None else rank.number % hosts.each,
        store=str(store),
        store_port=store_port,
        interface=hosts.interface if hosts is not None and is_here else None,
        model_files="" if is_here else model_files,
    )


def _joined(hosts: list[JoinedHost]) -> Iterator[RankState]:
    for host in hosts:
        for number in host.ranks:
            yield RankState(
                number,
                RemoteProcess(host, number),
                Channel(host.connections[number], FromRank, MAX_REPORT_BYTES),
                time.monotonic(),
                host=host,
            )


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
