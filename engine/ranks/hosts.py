"""The leader's side of a model on several hosts: other hosts join over TCP with their ranks. Does
not import torch.

A host has a control connection (``engine.ranks.messages.FromHost``), over which it also says
how its ranks ended, and one more for each of its ranks, which then becomes the channel of that
rank's process. ``engine.ranks.join`` is the other end. When the leader ends its direction of the
host's connection, the host ends its ranks and then the connection.
"""

from __future__ import annotations

import logging
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from engine.addresses import address_text, own_address, plain_address
from engine.config import DeviceError, EngineConfig, OnProgress
from engine.ranks.channel import Channel, encode_message
from engine.ranks.handshake import HANDSHAKE_SECONDS, admit
from engine.ranks.messages import FromHost, JoinHost, JoinRank, JoinRefused, RankEnded, Welcome
from engine.ranks.network import interface_of, listen, tune_connection
from engine.ranks.processes import describe_end
from engine.ranks.strangers import Strangers

_log = logging.getLogger(__name__)

# Of a host's own messages, none of which is long.
HOST_MESSAGE_BYTES = 4096
# Between two connections, so that a flood of them takes no more than its share of this process;
# the longer one once no host is missing, and after an error.
_ACCEPT_PAUSE_SECONDS = 0.01
_LONG_ACCEPT_PAUSE_SECONDS = 0.2
_RANKS_SECONDS = 60.0  # for a host that has joined to connect its ranks
_WAITING_LOG_SECONDS = 60.0
_SIGNAL_SECONDS = 0.5
_WARNING_SECONDS = 60.0  # between equal ones
_MOST_WARNINGS = 100  # in that time
# For a host to end its ranks; after that it is left to itself.
_PARTING_SECONDS = 5.0


def own_release() -> str:
    """Return what all hosts must have in common: the versions of Quire and torch."""
    return ", ".join(f"{name} {_version(name)}" for name in ("quire", "torch"))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # running from a checkout that was never installed
        return "unknown"


@dataclass(slots=True, eq=False)
class JoinedHost:
    """Another host. ``connections``: those of its ranks, by their numbers."""

    name: str
    session: str
    gpus: int
    first: int
    count: int
    channel: Channel[FromHost]
    own_address: str  # of this machine, as that host reaches it
    changed: threading.Condition
    joined_at: float = field(default_factory=time.monotonic)
    connections: dict[int, socket.socket] = field(default_factory=dict)
    statuses: dict[int, int] = field(default_factory=dict)
    is_gone: bool = False
    parts_until: float | None = None  # when it is given up, once it has been asked to leave

    @property
    def ranks(self) -> range:
        return range(self.first, self.first + self.count)

    @property
    def which(self) -> str:
        last = self.ranks[-1]
        return f"rank {last}" if self.count == 1 else f"ranks {self.first} to {last}"

    @property
    def loss(self) -> str:
        return f"host {self.name} with {self.which} left, or cannot be reached"

    def close(self) -> None:
        self.channel.close()
        for connection in self.connections.values():
            connection.close()


class RemoteProcess:
    """A rank's process on another host; see ``engine.ranks.processes.RankProcess``."""

    def __init__(self, host: JoinedHost, rank: int) -> None:
        self._host = host
        self._rank = rank

    def poll(self) -> int | None:
        return self._host.statuses.get(self._rank)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until its host reports its end or is gone itself. Without ``timeout``, at most for
        as long as a host takes to end its ranks."""
        host, seconds = self._host, timeout
        if seconds is None:
            seconds = _PARTING_SECONDS
            if host.parts_until is not None:
                seconds = max(0.0, host.parts_until - time.monotonic())
        with host.changed:
            host.changed.wait_for(lambda: host.is_gone or self._rank in host.statuses, seconds)
            has_ended = host.is_gone or self._rank in host.statuses
        if timeout is not None and not has_ended:
            raise subprocess.TimeoutExpired(f"rank {self._rank}", timeout)
        return host.statuses.get(self._rank, 1)

    def kill(self) -> None:
        """End all ranks of that host: they only ever end together."""
        if self._host.parts_until is None:
            self._host.parts_until = time.monotonic() + _PARTING_SECONDS
        self._host.channel.shutdown()
        with suppress(OSError):  # a thread that sends to the rank must not wait for it any longer
            self._host.connections[self._rank].shutdown(socket.SHUT_RDWR)


class Hosts:
    """Listens for the other hosts of one engine, from its construction until ``close``. Raises
    DeviceError if it cannot.

    ``on_progress("hosts", found, wanted)`` is called by ``gather``; this host counts.
    ``on_lost(host)`` is called from another thread when one that ``gather`` returned is gone.
    """

    def __init__(
        self,
        config: EngineConfig,
        on_progress: OnProgress = lambda phase, done, total: None,
        *,
        release: str | None = None,
    ) -> None:
        assert config.ranks_secret is not None
        self.count = config.tensor_parallel_hosts
        self.each = config.ranks_per_host
        self.address = own_address(config.ranks_host)
        self._secret = config.ranks_secret
        self._gpus = self.each if config.device == "cuda" else 0
        self._release = release or own_release()
        self._changed = threading.Condition()
        self._joined: list[JoinedHost] = []
        self._warned: dict[str, float] = {}
        self._is_whole = self._is_closed = False
        self._strangers = Strangers()
        self._on_progress = on_progress
        self._on_lost: Callable[[JoinedHost], None] = lambda host: None
        try:
            self._listener = listen(config.ranks_host, config.ranks_port)
        except OSError as error:
            raise DeviceError(
                f"cannot listen on {address_text(config.ranks_host, config.ranks_port)} for other "
                f"hosts: {error.strerror or error}; see --ranks-host and --ranks-port"
            ) from error
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="engine-hosts", daemon=True).start()

    @property
    def interface(self) -> str | None:
        """The network interface that leads to the other hosts, if it is known."""
        return interface_of(self._joined[0].own_address)

    def gather(self, on_lost: Callable[[JoinedHost], None]) -> list[JoinedHost]:
        """Wait until all hosts have joined, and return them in the order of their ranks. One that
        leaves before, or does not connect its ranks, is replaced by the next. Returns none if this
        is closed meanwhile."""
        said_at, reported = -_WAITING_LOG_SECONDS, 0
        with self._changed:
            while not (self._is_closed or self._all_are_here()):
                if (now := time.monotonic()) - said_at > _WAITING_LOG_SECONDS:
                    said_at = now
                    self._say_who_is_missing()
                if (found := 1 + len(self._joined)) != reported:
                    reported = found
                    self._on_progress("hosts", found, self.count)
                self._give_up_who_has_no_ranks(now)
                # Not longer: a signal that comes just before a wait does not end it.
                self._changed.wait(_SIGNAL_SECONDS)
            self._is_whole, self._on_lost = True, on_lost
            return sorted(self._joined, key=lambda host: host.first)

    def check_devices(self, config: EngineConfig) -> None:
        """Raise DeviceError if a host that joined has too few GPUs; ``config.device``: as it was
        chosen."""
        for host in self._joined:
            if config.device == "cuda" and host.gpus < self.each:
                raise DeviceError(
                    f"host {host.name} offers {host.gpus} GPUs, and {self.each} are needed of each "
                    "(--tensor-parallel-size divided by --tensor-parallel-hosts)"
                )

    def close(self) -> None:
        """Leave all hosts, and listen no longer. Closing again does nothing."""
        with self._changed:
            self._is_closed = True
            joined, self._joined = self._joined, []
            self._changed.notify_all()
        # Wakes the thread that accepts; closing alone would not.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for host in joined:
            host.channel.cut()
            host.close()

    def _all_are_here(self) -> bool:
        return len(self._joined) == self.count - 1 and all(
            len(host.connections) == host.count for host in self._joined
        )

    def _say_who_is_missing(self) -> None:
        ranks = (self.count - 1) * self.each
        _log.info(
            "waiting on port %d for %d of %d hosts, and %d of their %d ranks",
            self.port,
            self.count - 1 - len(self._joined),
            self.count,
            ranks - sum(len(host.connections) for host in self._joined),
            ranks,
        )

    def _give_up_who_has_no_ranks(self, now: float) -> None:
        for host in self._joined:
            if len(host.connections) < host.count and now - host.joined_at > _RANKS_SECONDS:
                self._warn(
                    f"host {host.name} is given up: it has connected {len(host.connections)} of "
                    f"its {host.count} ranks within {_RANKS_SECONDS:.0f} s"
                )
                host.channel.cut()  # the thread that serves it does the rest

    # --- other threads -------------------------------------------------------------------------

    def _accept(self) -> None:
        pause = 0.0
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._is_closed, pause):
                    return
            try:
                connection, peer = self._listener.accept()
            except OSError:  # closed, or this process has no descriptor left at the moment
                pause = _LONG_ACCEPT_PAUSE_SECONDS
                continue
            self._meet(connection, plain_address(peer[0]))
            pause = _LONG_ACCEPT_PAUSE_SECONDS if self._is_whole else _ACCEPT_PAUSE_SECONDS

    def _meet(self, connection: socket.socket, peer: str) -> None:
        ended = self._strangers.add(connection, peer)
        if ended is not None:
            self._warn(f"too many connections without the secret: ended the oldest, from {ended}")
        try:
            threading.Thread(
                target=self._greet, args=(connection, peer), name="engine-host", daemon=True
            ).start()
        except RuntimeError as error:  # the system has no thread left at the moment
            self._strangers.remove(connection)
            self._warn(f"refused a connection from {peer}: {error}")
            connection.close()

    def _greet(self, connection: socket.socket, peer: str) -> None:
        """Find out who it is; nothing of what it sends is decoded before it knows the secret."""
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        try:
            try:
                admit(connection, self._secret)
                channel: Channel[FromHost] = Channel(connection, FromHost, HOST_MESSAGE_BYTES)
                first = channel.receive(deadline)
                tune_connection(connection)
            finally:
                self._strangers.remove(connection)
            match first:
                case JoinHost():
                    self._take_host(first, connection, channel, peer)
                    return
                case JoinRank() if self._take_rank(first, connection, channel):
                    return
        except Exception as error:  # nothing that a connection sends may end the engine
            self._warn(f"refused a connection from {peer}: {error}")
        connection.close()

    def _warn(self, text: str) -> None:
        """Log what a host that tries again and again causes, only now and then."""
        now = time.monotonic()
        with self._changed:
            recent = {one: at for one, at in self._warned.items() if now - at < _WARNING_SECONDS}
            self._warned = recent
            if text in recent or len(recent) >= _MOST_WARNINGS:
                return
            recent[text] = now
        _log.warning("%s", text)

    def _take_host(
        self, offer: JoinHost, connection: socket.socket, channel: Channel[FromHost], peer: str
    ) -> None:
        """Serve its connection until it ends."""
        name = offer.name if offer.name == peer else f"{offer.name} ({peer})"
        with self._changed:
            reason = self._objection(offer)
            host = self._enter(name, offer, connection, channel) if reason is None else None
        if host is None:
            assert reason is not None
            self._warn(f"refused host {name}: {reason}")
            with suppress(OSError):
                channel.send(encode_message(JoinRefused(reason)))
            channel.close()
            return
        _log.info("host %s joins with %s", name, host.which)
        try:
            channel.send(encode_message(Welcome(host.session, host.first, host.count)))
            while (messages := channel.read()) is not None and self._hear(host, messages):
                pass
        except Exception as error:  # whatever it sends, its place must become free
            _log.warning("lost host %s: %s", name, error)
        self._lose(host)

    def _hear(self, host: JoinedHost, messages: list[FromHost]) -> bool:
        """False if the host cannot take part: a rank of it ended before all hosts were here."""
        with self._changed:
            for message in messages:
                if isinstance(message, RankEnded) and message.rank in host.ranks:
                    host.statuses[message.rank] = message.status
                    if not self._is_whole:
                        end = describe_end(message.status)
                        self._warn(f"rank {message.rank} on host {host.name} {end}")
                        return False
            self._changed.notify_all()
        return True

    def _objection(self, offer: JoinHost) -> str | None:
        if offer.release != self._release:
            return f"it runs {offer.release}, and the leader {self._release}; they must be equal"
        if offer.gpus < self._gpus:
            return (
                f"it offers {offer.gpus} GPUs, and each of the {self.count} hosts needs {self.each}"
            )
        if self._is_closed or any(host.is_gone or host.statuses for host in self._joined):
            return "the engine ends, as it has lost a host; the next one takes this host"
        if len(self._joined) >= self.count - 1:
            return f"the engine has its {self.count} hosts (--tensor-parallel-hosts)"
        return None

    def _enter(
        self, name: str, offer: JoinHost, connection: socket.socket, channel: Channel[FromHost]
    ) -> JoinedHost:
        taken = {host.first for host in self._joined}
        starts = range(self.each, self.count * self.each, self.each)
        first = next(start for start in starts if start not in taken)
        host = JoinedHost(
            name,
            secrets.token_hex(16),
            offer.gpus,
            first,
            self.each,
            channel,
            connection.getsockname()[0],
            self._changed,
        )
        self._joined.append(host)
        return host

    def _take_rank(
        self, offer: JoinRank, connection: socket.socket, channel: Channel[FromHost]
    ) -> bool:
        """False if no host needs this connection."""
        with self._changed:
            for host in self._joined:
                if (
                    secrets.compare_digest(host.session.encode(), offer.session.encode())
                    and offer.rank in host.ranks
                    and offer.rank not in host.connections
                ):
                    channel.send(encode_message(Welcome(host.session, offer.rank, 1)))
                    host.connections[offer.rank] = connection
                    self._changed.notify_all()
                    return True
        return False

    def _lose(self, host: JoinedHost) -> None:
        with self._changed:
            host.is_gone = True
            self._changed.notify_all()
            is_needed = host in self._joined
            if is_needed and not self._is_whole:
                self._joined.remove(host)
                host.close()
                _log.warning("host %s left before the model was loaded", host.name)
                return
            on_lost = self._on_lost
        if is_needed:
            on_lost(host)
