"""The engine's unix socket: accepts connections, reads their messages, writes frames to them.

An I/O thread does everything that may block. ``send`` writes directly from the caller's thread
while the peer keeps up, and never blocks: what the peer does not accept at once is buffered and
written by the I/O thread. A peer is cut off if its buffer exceeds a limit or it sends invalid
messages. In either case, and when it leaves, a ``Closed`` event is reported.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import selectors
import socket
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from engine.frames import FrameReader, FrameTooLargeError
from engine.messages import Handle, ToEngine, decode_to_engine

logger = logging.getLogger(__name__)

MAX_BUFFERED_BYTES = 64 * 1024 * 1024
_RECEIVE_BYTES = 256 * 1024
_PERSISTENT_ACCEPT_ERRORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


@dataclass(frozen=True, slots=True)
class Opened:
    connection: int


@dataclass(frozen=True, slots=True)
class Received:
    connection: int
    message: ToEngine


@dataclass(frozen=True, slots=True)
class Malformed:
    """An invalid submission whose handles could be read; nothing else in it is reliable."""

    connection: int
    handles: tuple[int, ...]
    error: str


@dataclass(frozen=True, slots=True)
class Closed:
    connection: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The I/O thread ended with an unexpected error."""

    error: str


ConnectionEvent = Opened | Received | Malformed | Closed | Failed


class SocketInUseError(OSError):
    """Another process listens on the path, or it is not a socket."""


class _CopyHandle(msgspec.Struct, array_like=True):
    handle: Handle


class _SubmitHandle(msgspec.Struct, tag="submit"):
    """The part of an invalid ``Submit`` that is needed to answer it."""

    handle: Handle
    copies: tuple[_CopyHandle, ...] = ()


_handle_decoder = msgspec.msgpack.Decoder(_SubmitHandle)


@dataclass(slots=True, eq=False)
class _Peer:
    connection: int
    socket: socket.socket
    reader: FrameReader = field(default_factory=FrameReader)
    # The lock guards everything below, and all writes to the socket.
    lock: threading.Lock = field(default_factory=threading.Lock)
    outgoing: deque[memoryview] = field(default_factory=deque)
    buffered: int = 0
    cut: str | None = None  # why the I/O thread should close it
    closed: bool = False


def bind(path: Path) -> socket.socket:
    """Listen on a unix socket that only this user can open. A stale socket file is replaced.

    Raises SocketInUseError, or another OSError when the path cannot be bound.
    """
    _remove_stale(path)
    # Bound under another name and renamed once it listens, so that an existing path always accepts.
    unready = path.with_name(f".{path.name}.{os.getpid()}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The mode must apply from the start, so it is masked rather than changed afterwards.
    old_mask = os.umask(0o177)
    try:
        listener.bind(str(unready))
        listener.listen(64)
        unready.rename(path)
    except OSError as error:
        listener.close()
        unready.unlink(missing_ok=True)
        raise OSError(error.errno, f"cannot bind {path}: {error.strerror or error}") from error
    finally:
        os.umask(old_mask)
    listener.setblocking(False)
    return listener


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketInUseError(errno.EEXIST, f"{path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise SocketInUseError(errno.EADDRINUSE, f"another engine listens on {path}")


class ConnectionServer:
    """Connections are identified by increasing integers. Events go to ``on_event``, called from the
    I/O thread; for one connection they come in order: Opened, its messages, Closed."""

    def __init__(
        self,
        path: Path,
        on_event: Callable[[ConnectionEvent], None],
        *,
        max_buffered_bytes: int = MAX_BUFFERED_BYTES,
    ) -> None:
        self.path = path
        self._on_event = on_event
        self._max_buffered_bytes = max_buffered_bytes
        self._listener = bind(path)
        self._inode = path.stat().st_ino
        self._ids = itertools.count(1)
        self._lock = threading.Lock()  # guards _peers and _announcement together
        self._peers: dict[int, _Peer] = {}
        self._announcement: bytes | None = None
        self._attention: deque[_Peer] = deque()  # peers that need the I/O thread's attention
        self._waker, self._wakeup = socket.socketpair()
        self._waker.setblocking(False)
        self._wakeup.setblocking(False)
        self._close_by: float | None = None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wakeup, selectors.EVENT_READ, self._look)
        self._thread = threading.Thread(target=self._serve, name="engine-io", daemon=True)
        self._thread.start()

    # --- called from other threads -------------------------------------------------------------

    def send(self, connection: int, frame: bytes) -> None:
        """Write a frame, or buffer it. Does nothing for a closed connection."""
        peer = self._peers.get(connection)
        if peer is not None and not self._write(peer, frame):
            self._request_attention(peer)

    def announce(self, frame: bytes) -> None:
        """Send a frame to every connection, and to each later one as its first."""
        with self._lock:
            self._announcement = frame
            peers = list(self._peers)
        for connection in peers:
            self.send(connection, frame)

    def broadcast(self, frame: bytes) -> None:
        """Send a frame to every connection there is now."""
        with self._lock:
            peers = list(self._peers)
        for connection in peers:
            self.send(connection, frame)

    def cut(self, connection: int, reason: str) -> None:
        """Close a connection."""
        peer = self._peers.get(connection)
        if peer is not None:
            with peer.lock:
                peer.cut = reason
            self._request_attention(peer)

    def close(self, flush_seconds: float = 2.0) -> None:
        """Stop accepting, write what is buffered for at most ``flush_seconds``, close all
        connections and remove the socket file. Closing again does nothing."""
        self._close_by = time.monotonic() + flush_seconds
        self._wake()
        self._thread.join()
        self._waker.close()

    # --- writing -------------------------------------------------------------------------------

    def _write(self, peer: _Peer, frame: bytes) -> bool:
        """Write or buffer a frame; True if all of it was written."""
        with peer.lock:
            if peer.closed or peer.cut:
                return True
            rest = memoryview(frame)
            if not peer.outgoing:
                try:
                    rest = rest[peer.socket.send(rest) :]
                except (BlockingIOError, InterruptedError):
                    pass
                except OSError as error:
                    peer.cut = f"write failed: {error}"
                    return False
            if not rest:
                return True
            peer.outgoing.append(rest)
            peer.buffered += len(rest)
            if peer.buffered > self._max_buffered_bytes:
                peer.cut = f"reads too slowly: {peer.buffered} bytes are buffered"
            return False

    def _request_attention(self, peer: _Peer) -> None:
        self._attention.append(peer)
        self._wake()

    def _wake(self) -> None:
        # A full pipe means that the I/O thread has not seen an earlier call yet, which is enough.
        if self._thread.is_alive():
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                self._waker.send(b"\0")

    # --- the I/O thread ------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            self._serve_until_closed()
        except Exception as error:
            logger.exception("the connection server failed")
            self._on_event(Failed(f"{type(error).__name__}: {error}"))
        finally:
            for peer in list(self._peers.values()):
                self._close_peer(peer)
            self._selector.close()
            self._listener.close()
            self._wakeup.close()
            self._unlink()

    def _serve_until_closed(self) -> None:
        while self._close_by is None or not self._is_flushed():
            timeout = None if self._close_by is None else 0.05
            for key, mask in self._selector.select(timeout):
                key.data(mask) if callable(key.data) else self._on_ready(key.data, mask)

    def _is_flushed(self) -> bool:
        assert self._close_by is not None
        late = time.monotonic() >= self._close_by
        return late or not any(peer.outgoing for peer in self._peers.values())

    def _unlink(self) -> None:
        """Remove the socket file, unless another process has replaced it."""
        with contextlib.suppress(FileNotFoundError):
            if self.path.lstat().st_ino == self._inode:
                self.path.unlink()

    def _accept(self, _mask: int) -> None:
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in _PERSISTENT_ACCEPT_ERRORS:
                raise
            logger.error("cannot accept a connection: %s", error)
            time.sleep(0.05)  # the listener stays readable: avoid spinning until files are closed
            return
        if self._close_by is not None:
            accepted.close()
            return
        accepted.setblocking(False)
        peer = _Peer(next(self._ids), accepted)
        self._selector.register(accepted, selectors.EVENT_READ, peer)
        with self._lock:
            self._peers[peer.connection] = peer
            announcement = self._announcement
            if announcement is not None and not self._write(peer, announcement):
                self._attention.append(peer)
        self._on_event(Opened(peer.connection))
        self._tend()

    def _look(self, _mask: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wakeup.recv(4096):
                pass
        self._tend()

    def _tend(self) -> None:
        """Watch the peers that have buffered data; close those to be cut."""
        while self._attention:
            peer = self._attention.popleft()
            if peer.closed:
                continue
            if peer.cut:
                self._cut(peer, peer.cut)
            elif peer.outgoing:
                self._selector.modify(
                    peer.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, peer
                )

    def _on_ready(self, peer: _Peer, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush(peer)
        if mask & selectors.EVENT_READ and not peer.closed:
            self._read(peer)

    def _flush(self, peer: _Peer) -> None:
        with peer.lock:
            try:
                while peer.outgoing:
                    sent = peer.socket.send(peer.outgoing[0])
                    peer.buffered -= sent
                    if sent == len(peer.outgoing[0]):
                        peer.outgoing.popleft()
                    else:
                        peer.outgoing[0] = peer.outgoing[0][sent:]
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                peer.cut = f"write failed: {error}"
        if peer.cut:
            self._cut(peer, peer.cut)
        else:
            self._selector.modify(peer.socket, selectors.EVENT_READ, peer)

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.socket.recv(_RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._cut(peer, f"read failed: {error}")
            return
        if not data:
            self._close_peer(peer)
            return
        try:
            for body in peer.reader.feed(data):
                self._on_event(_decode(peer.connection, body))
        except FrameTooLargeError as error:
            self._cut(peer, str(error))
        except msgspec.MsgspecError as error:
            self._cut(peer, f"invalid message: {error}")

    def _cut(self, peer: _Peer, reason: str) -> None:
        logger.warning("closing connection %d: %s", peer.connection, reason)
        self._close_peer(peer)

    def _close_peer(self, peer: _Peer) -> None:
        with self._lock:
            self._peers.pop(peer.connection, None)
        with peer.lock:
            self._selector.unregister(peer.socket)
            peer.closed = True
            peer.outgoing.clear()
            peer.socket.close()
        self._on_event(Closed(peer.connection))


def _decode(connection: int, body: bytes) -> Received | Malformed:
    """Decode a message. Raises msgspec.MsgspecError if not even a handle can be read."""
    try:
        return Received(connection, decode_to_engine(body))
    except msgspec.ValidationError as error:
        try:
            partial = _handle_decoder.decode(body)
        except msgspec.MsgspecError:
            raise error from None
        handles = (partial.handle, *(copy.handle for copy in partial.copies))
        return Malformed(connection, handles, str(error))
