"""The engine's unix socket, without an engine."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.loop.connections import (
    Closed,
    ConnectionEvent,
    ConnectionServer,
    Opened,
    Received,
    SocketInUseError,
    bind,
)
from engine.messages import Abort, encode_frame

DEADLINE_SECONDS = 30.0


class Server:
    """A server with its events in a queue."""

    def __init__(self, path: Path, max_buffered_bytes: int) -> None:
        self.events: queue.SimpleQueue[ConnectionEvent] = queue.SimpleQueue()
        self.server = ConnectionServer(path, self.events.put, max_buffered_bytes=max_buffered_bytes)
        self.path = path

    def connect(self) -> tuple[socket.socket, int]:
        """A connected socket, and the number of its connection."""
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.settimeout(DEADLINE_SECONDS)
        peer.connect(str(self.path))
        event = self.next()
        assert isinstance(event, Opened)
        return peer, event.connection

    def next(self) -> ConnectionEvent:
        return self.events.get(timeout=DEADLINE_SECONDS)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "s.sock", max_buffered_bytes=4 << 20)
    yield server
    server.server.close(flush_seconds=0)


def receive_exactly(peer: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = peer.recv(min(1 << 16, count - len(data)))
        assert part, "closed early"
        data += part
    return bytes(data)


def test_a_connections_messages_arrive_in_order_and_then_its_end(server: Server) -> None:
    peer, connection = server.connect()
    peer.sendall(encode_frame(Abort([1])) + encode_frame(Abort([2])))
    peer.close()
    assert [server.next() for _ in range(3)] == [
        Received(connection, Abort([1])),
        Received(connection, Abort([2])),
        Closed(connection),
    ]


def test_frames_arrive_whole_and_in_order_however_slowly_they_are_read(server: Server) -> None:
    peer, connection = server.connect()
    frames = [bytes([number]) * 10_000 for number in range(256)]
    for frame in frames:
        server.server.send(connection, frame)  # far more than the socket takes at once
    assert receive_exactly(peer, 2_560_000) == b"".join(frames)
    server.server.send(connection, b"again")
    assert receive_exactly(peer, 5) == b"again"


def test_a_peer_that_does_not_read_is_cut_off_and_the_others_go_on(server: Server) -> None:
    _slow, slow_connection = server.connect()
    good, good_connection = server.connect()
    for _ in range(100):
        server.server.send(slow_connection, bytes(100_000))
    assert server.next() == Closed(slow_connection)
    server.server.send(slow_connection, b"to nobody")
    server.server.send(good_connection, b"hello")
    assert receive_exactly(good, 5) == b"hello"


def test_sending_never_blocks_the_sender(server: Server) -> None:
    _slow, connection = server.connect()
    sent = threading.Event()

    def send() -> None:
        server.server.send(connection, bytes(3_000_000))
        sent.set()

    threading.Thread(target=send, daemon=True).start()
    assert sent.wait(DEADLINE_SECONDS)


def test_an_announcement_reaches_those_here_and_is_the_first_word_to_later_ones(
    server: Server,
) -> None:
    early, _ = server.connect()
    server.server.announce(b"one")
    server.server.announce(b"two")
    assert receive_exactly(early, 6) == b"onetwo"
    late, _ = server.connect()
    assert receive_exactly(late, 3) == b"two"


def test_a_cut_connection_is_closed(server: Server) -> None:
    peer, connection = server.connect()
    server.server.cut(connection, "a reason")
    assert server.next() == Closed(connection)
    assert peer.recv(1) == b""


def test_closing_writes_what_is_buffered_and_removes_the_socket_file(server: Server) -> None:
    peer, connection = server.connect()
    server.server.send(connection, bytes(2_000_000))
    reader = threading.Thread(target=receive_exactly, args=(peer, 2_000_000), daemon=True)
    reader.start()
    server.server.close(flush_seconds=DEADLINE_SECONDS)
    reader.join(DEADLINE_SECONDS)
    assert not reader.is_alive()
    assert not server.path.exists()


def test_closing_does_not_wait_for_a_peer_that_does_not_read(server: Server) -> None:
    _slow, connection = server.connect()
    server.server.send(connection, bytes(2_000_000))
    server.server.close(flush_seconds=0.1)
    assert not server.path.exists()


def test_a_live_socket_is_not_taken_and_a_plain_file_not_removed(
    server: Server, tmp_path: Path
) -> None:
    with pytest.raises(SocketInUseError, match="another engine listens"):
        bind(server.path)
    plain = tmp_path / "plain"
    plain.write_text("precious")
    with pytest.raises(SocketInUseError, match="not a socket"):
        bind(plain)
    assert plain.read_text() == "precious"


def test_a_path_that_is_too_long_for_a_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot bind"):
        bind(tmp_path / ("x" * 120))


def test_a_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    bind(path).close()  # closing a listener leaves its file
    assert path.exists()
    server = Server(path, 1 << 20)
    server.connect()
    server.server.close(flush_seconds=0)
