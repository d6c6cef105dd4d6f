"""``python -m engine.ranks.join``, which is ``quire join``: offers this host's devices to the
engine of another host. Does not import torch.

It connects, proves that it knows the secret, starts the ranks that it is given, each with its own
connection to rank 0, and reports their ends. When the leader ends the connection, or cannot be
reached, it ends its ranks and offers itself again, to the next engine.
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Annotated, Literal

import msgspec

from engine.addresses import address_text
from engine.device.visible import visible_gpus
from engine.frames import FrameTooLargeError
from engine.options import (
    ENVIRONMENT_PREFIX,
    OptionError,
    add_arguments,
    environment_defaults,
    from_namespace,
    setting,
)
from engine.ranks.channel import Channel, encode_message
from engine.ranks.handshake import HANDSHAKE_SECONDS, HandshakeError, introduce
from engine.ranks.hosts import HOST_MESSAGE_BYTES, own_release
from engine.ranks.messages import JoinHost, JoinRank, JoinRefused, RankEnded, ToHost, Welcome
from engine.ranks.network import interface_of, parse_address, peer_of, tune_connection
from engine.ranks.processes import describe_end, start_rank
from observability.logging import configure
from observability.stacks import write_stacks_on_sigusr1

_log = logging.getLogger(__name__)

_FIRST_DELAY_SECONDS = 0.2
_LONGEST_DELAY_SECONDS = 3.0
_KILL_SECONDS = 30.0  # for ranks that were killed to be gone
# What reading raises if the other end sends what no leader sends.
_NO_LEADERS = (FrameTooLargeError, msgspec.DecodeError, RecursionError)
_GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"


class JoinOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of ``quire join``."""

    ranks_secret: Annotated[
        str,
        setting(
            "Joining",
            "The leader's --ranks-secret.",
            secret=True,
            min_length=16,
            max_length=1024,
        ),
    ]
    log_format: Annotated[
        Literal["auto", "json", "console"],
        setting("Joining", "Log format; auto: text on a terminal, else JSON."),
    ] = "auto"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        setting("Joining", "Lowest severity that is logged."),
    ] = "info"


class NotJoinedError(Exception):
    """This host could not join now; the message says why."""


class Joiner:
    """Call ``run`` once, on the main thread. ``leader``: host and port."""

    def __init__(self, leader: tuple[str, int], options: JoinOptions, name: str) -> None:
        self._leader = leader
        self._options = options
        self._name = name
        self._offer = JoinHost(name, own_release(), len(visible_gpus(os.environ)))
        self._stopping = False
        self._said = ""
        self._wakeups, self._wakes = socket.socketpair()

    def run(self) -> int:
        """Offer this host again and again, until SIGTERM, SIGINT or, unless it is ignored (nohup),
        SIGHUP. Returns 0. Raises SystemExit(1) if a rank survives its being killed."""
        for end in (self._wakeups, self._wakes):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        for number in stop_signals():
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        delay = _FIRST_DELAY_SECONDS
        while not self._stopping:
            try:
                with ExitStack() as ends:
                    session = self._join(ends)
                    self._said, delay = "", _FIRST_DELAY_SECONDS
                    session.serve(self)
            except NotJoinedError as error:
                self._say(str(error))
                self.wait(delay)
                delay = min(2 * delay, _LONGEST_DELAY_SECONDS)
        _log.info("stopped")
        return 0

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    def wait(self, seconds: float | None, *others: socket.socket) -> bool:
        """Wait for a signal, among them that of a child's end, or for data on one of ``others``;
        True if data is there."""
        if self._stopping:
            return False
        ready, _, _ = select.select([self._wakeups, *others], [], [], seconds)
        with suppress(BlockingIOError):
            self._wakeups.recv(4096)
        return any(other in ready for other in others)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._stopping = True

    def _say(self, reason: str) -> None:
        """Log why, once for each new reason."""
        if reason != self._said:
            self._said = reason
            _log.warning("not joined: %s; trying again", reason)

    def _join(self, ends: ExitStack) -> Session:
        """Raises NotJoinedError."""
        try:
            connection = ends.enter_context(self._connect(self._leader))
            # A name may have several addresses: all connections must lead to the same leader.
            leader = peer_of(connection)
            channel: Channel[ToHost] = Channel(connection, ToHost, HOST_MESSAGE_BYTES)
            welcome = self._ask(connection, channel, self._offer)
            session = Session(connection, channel)
            ends.callback(session.end)
            here = connection.getsockname()[0]
            environ = rank_environment(os.environ, interface_of(here))
            arguments = (
                f"--leader={leader[0]}",
                f"--log-format={self._options.log_format}",
                f"--log-level={self._options.log_level}",
            )
            for rank in range(welcome.first, welcome.first + welcome.count):
                with self._connect(leader) as own:
                    self._ask(
                        own,
                        Channel(own, ToHost, HOST_MESSAGE_BYTES),
                        JoinRank(welcome.session, rank),
                    )
                    session.ranks[rank] = start_rank(rank, own, environ, arguments)
        except (OSError, *_NO_LEADERS) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise NotJoinedError(f"{address_text(*self._leader)}: {reason or error}") from error
        pids = ", ".join(f"rank {rank} is process {p.pid}" for rank, p in session.ranks.items())
        _log.info("joined %s: %s", address_text(*self._leader), pids)
        return session

    def _connect(self, leader: tuple[str, int]) -> socket.socket:
        """Return a connection to the leader that knows our secret, as we know its."""
        connection = socket.create_connection(leader, HANDSHAKE_SECONDS)
        try:
            introduce(connection, self._options.ranks_secret)
        except BaseException:
            connection.close()
            raise
        return connection

    def _ask(
        self, connection: socket.socket, channel: Channel[ToHost], offer: JoinHost | JoinRank
    ) -> Welcome:
        connection.settimeout(HANDSHAKE_SECONDS)
        channel.send(encode_message(offer))
        answer = channel.receive(time.monotonic() + HANDSHAKE_SECONDS)
        tune_connection(connection)
        match answer:
            case Welcome():
                return answer
            case JoinRefused(reason):
                raise HandshakeError(f"refused: {reason}")
        raise HandshakeError("it closed the connection")


class Session:
    """This host's part in one engine."""

    def __init__(self, connection: socket.socket, channel: Channel[ToHost]) -> None:
        self.ranks: dict[int, subprocess.Popen[bytes]] = {}
        self._connection = connection
        self._channel = channel
        self._reported: set[int] = set()

    def serve(self, joiner: Joiner) -> None:
        """Report ranks that end, until the leader ends the session or this host stops."""
        while not joiner.is_stopping:
            self._report()
            if joiner.wait(None, self._connection) and self._has_ended():
                _log.info("the leader ended the engine, or cannot be reached")
                return

    def _has_ended(self) -> bool:
        try:
            return self._channel.read() is None
        except _NO_LEADERS as error:
            _log.error("the leader sent what no leader sends: %s", error)
            return True

    def end(self) -> None:
        """Kill the ranks, report their ends and leave. Raises SystemExit(1) if one does not end:
        its device is not free, so this host cannot join the next engine."""
        for process in self.ranks.values():
            process.kill()
        deadline, survives = time.monotonic() + _KILL_SECONDS, False
        for rank, process in self.ranks.items():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:  # it hangs in the kernel, most likely in a driver
                survives = True
                _log.error(
                    "rank %d, process %d, was killed and is still there after %.0f s; giving up",
                    rank,
                    process.pid,
                    _KILL_SECONDS,
                )
        self._report()
        self._channel.close()
        if survives:
            raise SystemExit(1)

    def _report(self) -> None:
        for rank, process in self.ranks.items():
            status = process.poll()
            if status is not None and rank not in self._reported:
                self._reported.add(rank)
                _log.info("rank %d %s", rank, describe_end(status))
                with suppress(OSError):
                    self._channel.send(encode_message(RankEnded(rank, status)))


def stop_signals() -> list[signal.Signals]:
    """Return the signals that end this program: SIGHUP only unless it is ignored, as by nohup.
    Call it before SIGHUP has a handler."""
    ignores_hangup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([] if ignores_hangup else [signal.SIGHUP])]


def rank_environment(environ: Mapping[str, str], interface: str | None) -> dict[str, str]:
    """Return the environment of ranks: without our settings, which they get from rank 0, and the
    secret; gloo talks on the interface that leads to the leader, unless its variable says
    otherwise."""
    kept = {n: value for n, value in environ.items() if not n.startswith(ENVIRONMENT_PREFIX)}
    if interface is not None:
        kept.setdefault(_GLOO_INTERFACE, interface)
    return kept


def main(argv: list[str]) -> int:
    write_stacks_on_sigusr1()
    parser = argparse.ArgumentParser(
        prog="quire join",
        allow_abbrev=False,
        description="Offer this host's devices to 'quire serve --tensor-parallel-hosts' on another "
        "one (docs/tensor-parallel.md). The model must be here under the same path as there.",
    )
    parser.add_argument("leader", metavar="HOST:PORT", help="the leader, and its --ranks-port")
    parser.add_argument("--name", default=socket.gethostname(), help="this host's name in logs")
    add_arguments(parser, JoinOptions)
    try:
        parser.set_defaults(**environment_defaults(JoinOptions, os.environ))
        namespace = parser.parse_args(argv)
        options = from_namespace(JoinOptions, namespace)
        leader = parse_address(namespace.leader)
    except (OptionError, ValueError) as error:
        parser.error(str(error))
    writer = configure(log_format=options.log_format, level=options.log_level, process="quire join")
    try:
        return Joiner(leader, options, namespace.name[:253]).run()
    finally:
        writer.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
