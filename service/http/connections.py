"""Monitors clients' open connections, closes idle ones, and notices when clients leave.

The HTTP server accepts connections, reads and writes; it has no time limit for an idle connection
and does not report which ones are in use. So this module finds the sockets among the process's
descriptors once a second, and matches them by the peer's address with the app's current requests.
It closes a connection by shutting its socket down, which the server notices.

While a request is in progress, the server notices that its client leaves only if the client has
sent nothing ahead: with part of a next request in its buffer, even a line break, it stops reading.
So this module watches those connections, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import resource
import select
import socket
import stat
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from observability.logging import get_logger
from service.http.pause import PauseLog
from service.http.spare_descriptor import NO_NUMBER, SpareDescriptor

_DESCRIPTORS = "/dev/fd"
_LOOK_SECONDS = 1.0
# Scans for new connections only; the next one checks every descriptor again.
_BRIEF_LOOKS = 9
# While connections are scarce.
_HURRIED_LOOK_SECONDS = 0.05
# Of the time, at most: searches for the connections of clients that may have left.
_SEARCH_SHARE = 0.05
# This fraction of the allowed connections is kept free for new ones.
_SPARE = 8
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: drop unsent data
# The offset of tcpi_bytes_received in Linux's tcp_info.
_BYTES_RECEIVED = 128
_COUNT = struct.Struct("Q")
# The client will send no more. Only Linux reports it.
_LEFT = getattr(select, "POLLRDHUP", 0)
# Descriptors below this are found even if they cannot be listed.
_MOST_TRIED = 1 << 16

PeerAddress = tuple[str, int]
_FileId = tuple[int, int]

_log = get_logger()


@dataclass(slots=True)
class Peer:
    """One client connection as the app sees it: its requests in progress, and when the last of them
    ended (in monotonic seconds). ``leaving``: what waits for the client to leave; cancelled when it
    has left, since the server may not report that. ``was_sought``: an ordinary scan did not find
    its connection, so a closer one, which happens once, has looked for it."""

    address: PeerAddress
    requests: int = 0
    ended: float = 0.0
    was_sought: bool = False
    leaving: set[asyncio.Future[Any]] = field(default_factory=set)

    def note_left(self) -> None:
        for waiting in self.leaving:
            waiting.cancel()


@dataclass(frozen=True, slots=True)
class _Connection:
    address: PeerAddress
    found: float
    file: _FileId | None


class Connections:
    """``idle_timeout``: seconds that a connection may stay open between requests;
    ``first_timeout``: before its first request. ``most``: how many are accepted. ``warns``: if no
    descriptor is free, which all servers of a process notice. ``on_count``: gets how many are open
    after each scan."""

    def __init__(
        self,
        *,
        idle_timeout: float,
        first_timeout: float,
        most: int,
        warns: bool = True,
        on_count: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._idle_timeout = idle_timeout
        self._first_timeout = first_timeout
        self.most = most
        self._warns = warns
        self._on_count = on_count
        self._pause = PauseLog()
        self._kept_free = max(1, most // _SPARE)
        self._spare = SpareDescriptor()
        self._tried_at = 0.0  # all numbers, as descriptors could not be listed
        self._port: int | None = None
        self._peers: dict[PeerAddress, Peer] = {}
        self._open: dict[int, _Connection] = {}  # by descriptor
        self._descriptors: dict[PeerAddress, int] = {}
        # Descriptors that are not a client's, and which file each was when it was looked at.
        self._others: dict[int, _FileId] = {}
        self._brief_looks = 0  # since then
        self._next_search = 0.0  # for the connection of a client that may have left

    @property
    def open(self) -> int:
        """The number of connections open at the last scan."""
        return len(self._open)

    def enter(self, address: PeerAddress) -> Peer:
        """Record the start of a request from ``address``."""
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = Peer(address)
        peer.requests += 1
        return peer

    def leave(self, peer: Peer) -> None:
        """Record the end of one of ``peer``'s requests."""
        peer.requests -= 1
        peer.ended = time.monotonic()
        if self._port is None and not peer.requests:
            del self._peers[peer.address]  # without ``watch`` nothing else would remove it

    async def watch(self, port: int) -> None:
        """Close connections to ``port`` that have been idle for too long, and those idle longest
        when few more can be accepted. Runs until cancelled."""
        self._port = port
        was_needed = False
        try:
            while True:
                self._spare.refill()
                try:
                    scarce = self._end_idle()
                except OSError:  # there was none for the spare one, either
                    scarce = True
                self._on_count(self.open)
                self._pause.note(self.open, self.most, port)
                if self._warns and self._spare.was_needed and not was_needed:
                    _log.warning("no file descriptor is free: closing idle connections")
                was_needed = self._spare.was_needed
                await asyncio.sleep(_HURRIED_LOOK_SECONDS if scarce else _LOOK_SECONDS)
        finally:
            self._port = None
            self._spare.empty()

    def cut(self, peer: Peer) -> None:
        """Close the connection of ``peer`` at once; unsent data is dropped."""
        with self._socket_of(peer) as connection:
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                _shut(connection)

    def end(self, peer: Peer) -> None:
        """Close the connection of ``peer``, after what is unsent."""
        with self._socket_of(peer) as connection:
            if connection is not None:
                _shut(connection)

    def stays(self, peer: Peer) -> bool:
        """True if ``peer`` has closed neither its connection nor its sending half; False also if
        the system does not report it, or if it takes a scan and scans have taken too much time:
        clients that connect and leave at once would stop the event loop with them."""
        begin = time.monotonic()
        takes_scan = peer.address not in self._descriptors
        if not _LEFT or (takes_scan and begin < self._next_search):
            return False
        with self._socket_of(peer) as connection:
            if takes_scan:
                end = time.monotonic()
                self._next_search = end + (end - begin) / _SEARCH_SHARE
            if connection is None:
                return False
            poll = select.poll()
            poll.register(connection, _LEFT)
            return not poll.poll(0)

    def unsent(self, peer: Peer) -> int:
        """Return the number of bytes that ``peer`` has not acknowledged; 0 for a closed
        connection."""
        with self._socket_of(peer) as connection:
            return 0 if connection is None else _unacknowledged(connection)

    def received(self, peer: Peer) -> int | None:
        """Return the number of bytes that the HTTP server has read from ``peer``; None if unknown
        because the connection is closed or the system does not report it."""
        with self._socket_of(peer) as connection:
            return None if connection is None else _read_of(connection)

    def _end_idle(self) -> bool:
        """Close idle connections. True if connections or descriptors are scarce. Raises OSError if
        neither a descriptor nor the spare one is free."""
        now = time.monotonic()
        self._look(now)
        self._notice_left(now)
        idle = []  # (idle since, descriptor)
        for descriptor, connection in list(self._open.items()):
            peer = self._peers.get(connection.address)
            if peer is None:
                since, timeout = connection.found, self._first_timeout
            elif peer.requests:
                continue
            else:
                since, timeout = max(peer.ended, connection.found), self._idle_timeout
            idle.append((since, descriptor))
            if now - since >= timeout:
                self._end(descriptor)
        scarce = self._spare.was_needed or self._is_scarce(len(self._open))
        if scarce:
            idle.sort()
            for _, descriptor in idle[: max(self._kept_free, len(idle) // 2)]:
                self._end(descriptor)
        return scarce

    def _notice_left(self, now: float) -> None:
        """Wake the requests whose clients have left, with one system call for all. Clients that the
        server noticed itself are no longer among them."""
        leaving = [peer for peer in self._peers.values() if peer.leaving]
        if not _LEFT or not leaving:
            return
        missing = [peer for peer in leaving if peer.address not in self._descriptors]
        if any(not peer.was_sought for peer in missing):
            self._forget_reused()
            self._look(now)
            for peer in missing:
                peer.was_sought = True
        poll, peers = select.poll(), {}
        for peer in leaving:
            descriptor = self._descriptors.get(peer.address)
            if descriptor is not None:  # else it was reset before it could be found
                peers[descriptor] = peer
                poll.register(descriptor, _LEFT)
        for descriptor, _ in poll.poll(0):
            peers[descriptor].note_left()

    def _forget_reused(self) -> None:
        """Forget idle connections whose descriptors now belong to something else."""
        for descriptor, connection in list(self._open.items()):
            peer = self._peers.get(connection.address)
            is_idle = peer is None or not peer.requests
            if is_idle and _file_id(descriptor) != connection.file:
                self._forget(descriptor)

    def _look(self, now: float, *, again: bool = False) -> None:
        """Find new connections and forget closed ones. If a descriptor was reused since the last
        scan, its new connection is found when it seems idle, or with ``again``, which also checks
        known descriptors. Descriptors that were not a client's are compared with what they were
        only when connections are scarce and in one scan of ten, so that scanning costs a server
        without new clients little. For the admin port, all clients of the public one are such.
        Raises OSError if neither a descriptor nor the spare one is free."""
        present = self._present()
        for descriptor in self._open.keys() - present:
            self._forget(descriptor)
        possible = len(self._open) + len(self._others)  # the others' descriptors may be reused
        is_full = again or self._is_scarce(possible) or self._brief_looks >= _BRIEF_LOOKS
        self._brief_looks = 0 if is_full else self._brief_looks + 1
        for descriptor in self._others.keys() - present:
            del self._others[descriptor]
        unknown = present - self._open.keys()
        if is_full:
            self._others = {
                descriptor: file
                for descriptor, file in self._others.items()
                if _file_id(descriptor) == file
            }
        for descriptor in (present if again else unknown) - self._others.keys():
            # Before its address: if it is reused in between, it is looked at again.
            file = _file_id(descriptor)
            known = self._open.get(descriptor)
            if known is not None and known.file == file:
                continue  # without another look, which costs much more than its id
            address = self._peer_address(descriptor)
            if known is not None:
                self._forget(descriptor)
            if address is None:
                if file is not None:
                    self._others[descriptor] = file
            elif descriptor not in self._open:
                self._open[descriptor] = _Connection(address, now, file)
                self._descriptors[address] = descriptor
        for address in self._peers.keys() - self._descriptors.keys():
            if not self._peers[address].requests:
                del self._peers[address]

    def _present(self) -> set[int]:
        """Return the open descriptors. Raises OSError."""
        try:
            return set(map(int, os.listdir(_DESCRIPTORS)))
        except OSError as error:  # listing takes a descriptor
            if error.errno not in NO_NUMBER:
                raise
        self._spare.was_needed = True
        possible = {*self._open, *self._others}
        # Trying many numbers takes a tenth of a second, so that new ones are found once a second.
        now = time.monotonic()
        if now - self._tried_at >= _LOOK_SECONDS:
            self._tried_at = now
            allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            is_many = allowed == resource.RLIM_INFINITY or allowed > _MOST_TRIED
            possible |= set(range(_MOST_TRIED if is_many else allowed))
        return {descriptor for descriptor in possible if _file_id(descriptor) is not None}

    def _is_scarce(self, connections: int) -> bool:
        """True if with this many open connections too few more can be accepted."""
        return connections > self.most - self._kept_free

    def _forget(self, descriptor: int) -> _Connection | None:
        known = self._open.pop(descriptor, None)
        if known is not None and self._descriptors.get(known.address) == descriptor:
            del self._descriptors[known.address]
        return known

    def _peer_address(self, descriptor: int) -> PeerAddress | None:
        """Return the address of the client that a descriptor belongs to; None if it is not a
        client's. Raises OSError if neither a descriptor nor the spare one is free."""
        with self._borrowed(descriptor) as connection:
            return None if connection is None else _client_of(connection, self._port)

    def _end(self, descriptor: int) -> None:
        """Close the connection, unless the descriptor has been reused."""
        known = self._forget(descriptor)
        if known is None:
            return
        with self._borrowed(descriptor) as connection:
            if connection is not None and _client_of(connection, self._port) == known.address:
                _shut(connection)

    @contextlib.contextmanager
    def _socket_of(self, peer: Peer) -> Iterator[socket.socket | None]:
        """Yield the connection of ``peer`` if it is still open. Scans once if it is not known
        yet."""
        connection = None
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                if peer.address not in self._descriptors:
                    self._look(time.monotonic(), again=True)
                descriptor = self._descriptors.get(peer.address)
                if descriptor is not None:
                    connection = stack.enter_context(self._borrowed(descriptor))
            is_its = connection is not None and _client_of(connection, self._port) == peer.address
            yield connection if is_its else None

    @contextlib.contextmanager
    def _borrowed(self, descriptor: int) -> Iterator[socket.socket | None]:
        """Yield a duplicate of a descriptor, so that it cannot be reused meanwhile; None if it is
        closed or not a socket. Raises OSError if neither a descriptor nor the spare one is free.

        Only sockets are duplicated: closing any descriptor of a file releases all locks that the
        process holds on that file, and SQLite relies on those.
        """
        own = None
        if _is_socket(descriptor):
            try:
                own = self._spare.duplicate(descriptor)
            except OSError as error:
                if error.errno != errno.EBADF:
                    raise
        if own is None:
            yield None
            return
        if not _is_socket(own):  # a file after all: see above why it is not closed
            self._spare.abandon(own)
            yield None
            return
        connection = socket.socket(fileno=own)
        try:
            yield connection
        finally:
            self._spare.release(connection.detach())


def _client_of(connection: socket.socket, own_port: int | None) -> PeerAddress | None:
    """Return the address of the client of a connection to a port; None for any other socket."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        if connection.getsockname()[1] != own_port:
            return None
        host, port = connection.getpeername()[:2]
    except OSError:  # a listener, or no longer connected
        return None
    return host.partition("%")[0], port


def _file_id(descriptor: int) -> _FileId | None:
    """Return an id that no other open file or socket has; None if it is closed."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _unacknowledged(connection: socket.socket) -> int:
    try:
        answer = fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4))
    except OSError:
        return 0
    return int(struct.unpack("i", answer)[0])


def _read_of(connection: socket.socket) -> int | None:
    """Return the bytes received, minus those not read yet."""
    if sys.platform != "linux":
        return None
    end = _BYTES_RECEIVED + _COUNT.size
    try:
        told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, end)
        unread = fcntl.ioctl(connection, termios.FIONREAD, bytes(4))
    except OSError:
        return None
    if len(told) < end:  # before Linux 4.1
        return None
    return int(_COUNT.unpack_from(told, _BYTES_RECEIVED)[0]) - int(struct.unpack("i", unread)[0])
