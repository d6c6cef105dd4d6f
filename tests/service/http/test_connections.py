"""Clients' connections: found among the descriptors of the process, and bounded in number."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from service.http.connections import Connections
from service.http.door import Door
from service.http.origins import OriginRules
from service.http.server import HttpServer
from service.serving.connection_limits import ConnectionLimits
from service.supervision.listener import ServerAddress, open_listening_socket
from tests.service.http.apps import new_app

TRY_TO_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("locked")
"""


async def test_the_locks_of_this_process_s_files_are_kept(tmp_path: Path) -> None:
    """SQLite's among them: without them another process removes the log that this one reads."""
    path = tmp_path / "file"
    path.write_bytes(b"x")
    connections = Connections(idle_timeout=60, first_timeout=60, most=100)
    with path.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        watching = asyncio.create_task(connections.watch(1))
        await asyncio.sleep(0)  # it has looked once
        said = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", TRY_TO_LOCK, str(path)],
            capture_output=True,
            text=True,
        )
        watching.cancel()
    assert said.stdout == "locked\n", said.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_the_bytes_read_from_a_connection_are_known() -> None:
    connections = Connections(idle_timeout=60, first_timeout=60, most=100)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections._port = listener.getsockname()[1]
        with (
            socket.create_connection(listener.getsockname()) as client,
            listener.accept()[0] as accepted,
        ):
            peer = connections.enter(client.getsockname())
            client.sendall(b"x" * 5000)
            accepted.recv(5000, socket.MSG_WAITALL | socket.MSG_PEEK)
            assert connections.received(peer) == 0
            accepted.recv(3000, socket.MSG_WAITALL)
            assert connections.received(peer) == 3000
        assert connections.received(peer) is None


@pytest.mark.parametrize(("most", "looks"), [(4096, 10), (1, 1)])
def test_a_descriptor_that_becomes_a_client_s_is_found(most: int, looks: int) -> None:
    """At once when few are left."""
    connections = Connections(idle_timeout=60, first_timeout=60, most=most)
    number = os.open(__file__, os.O_RDONLY)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, number)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        connections._port = listener.getsockname()[1]
        connections._end_idle()
        assert number in connections._others
        stack.enter_context(socket.create_connection(listener.getsockname()))
        accepted = stack.enter_context(listener.accept()[0])
        os.dup2(accepted.fileno(), number)
        accepted.close()
        for _ in range(looks):
            connections._look(0.0)
        assert number in connections._open


def test_clients_that_leave_cost_few_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = Connections(idle_timeout=60, first_timeout=60, most=100)
    now, scans = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    look = connections._look

    def slow(at: float, *, again: bool = False) -> None:
        scans.append(at)
        now[0] += 0.01
        look(at, again=again)

    monkeypatch.setattr(connections, "_look", slow)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections._port = listener.getsockname()[1]
        gone = connections.enter(("127.0.0.1", 1))
        for _ in range(1000):
            now[0] += 0.001
            assert not connections.stays(gone)
        assert 4 <= len(scans) <= 6  # of 10 ms, in a second
        with socket.create_connection(listener.getsockname()) as client, listener.accept()[0]:
            now[0] += 1
            assert connections.stays(connections.enter(client.getsockname()))
            client.shutdown(socket.SHUT_WR)
            assert not connections.stays(connections.enter(client.getsockname()))


def test_a_search_looks_only_at_descriptors_that_are_new_or_reused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = Connections(idle_timeout=60, first_timeout=60, most=100)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        connections._port = listener.getsockname()[1]
        accepted = []
        for _ in range(20):
            stack.enter_context(socket.create_connection(listener.getsockname()))
            accepted.append(stack.enter_context(listener.accept()[0]))
        connections._look(0.0)
        assert connections.open == 20
        looked: list[int] = []
        address_of = connections._peer_address

        def counting(descriptor: int) -> tuple[str, int] | None:
            looked.append(descriptor)
            return address_of(descriptor)

        monkeypatch.setattr(connections, "_peer_address", counting)
        client = stack.enter_context(socket.create_connection(listener.getsockname()))
        reused = accepted[7].fileno()
        accepted[7].close()
        accepted[7] = stack.enter_context(listener.accept()[0])
        assert accepted[7].fileno() == reused
        connections._look(1.0, again=True)
        assert reused in looked
        assert not {each.fileno() for each in accepted} & set(looked) - {reused}
        assert connections._open[reused].address == client.getsockname()


def test_the_connections_of_another_port_are_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The admin port has few connections; those of the public one must not seem to use them up."""
    connections = Connections(idle_timeout=60, first_timeout=60, most=16)
    looked: list[int] = []
    address_of = connections._peer_address

    def counting(descriptor: int) -> tuple[str, int] | None:
        looked.append(descriptor)
        return address_of(descriptor)

    monkeypatch.setattr(connections, "_peer_address", counting)
    with contextlib.ExitStack() as stack:
        public = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        admin = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        connections._port = admin.getsockname()[1]
        for _ in range(40):
            stack.enter_context(socket.create_connection(public.getsockname()))
            stack.enter_context(public.accept()[0])
        for now in range(30):
            connections._look(float(now))
        assert len(set(looked)) >= 82
        # Each scan opens another descriptor, to list the others.
        assert len(looked) <= len(set(looked)) + 30
        stack.enter_context(socket.create_connection(admin.getsockname()))
        stack.enter_context(admin.accept()[0])
        connections._look(30.0)
        assert connections.open == 1


async def test_idle_connections_are_closed_although_no_descriptor_is_free() -> None:
    """Looking at a connection takes a descriptor. Other parts of the process, or of the machine,
    may have taken all; that must not be the end of looking."""
    connections = Connections(idle_timeout=60, first_timeout=60, most=100)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        watch = asyncio.create_task(connections.watch(listener.getsockname()[1]))
        stack.callback(watch.cancel)
        await asyncio.sleep(0)  # it has looked once
        client = stack.enter_context(socket.create_connection(listener.getsockname()))
        stack.enter_context(listener.accept()[0])
        client.setblocking(False)
        with no_free_descriptor():
            async with asyncio.timeout(20):
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
        assert not watch.done()


async def test_idle_connections_are_closed_although_what_becomes_free_is_taken_at_once() -> None:
    """By the thread that accepts connections."""
    connections = Connections(idle_timeout=60, first_timeout=60, most=100)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        clients = []
        for _ in range(4):
            clients.append(stack.enter_context(socket.create_connection(listener.getsockname())))
            stack.enter_context(listener.accept()[0])
        watch = asyncio.create_task(connections.watch(listener.getsockname()[1]))
        stack.callback(watch.cancel)
        await asyncio.sleep(0)  # it has looked once
        loop = asyncio.get_running_loop()
        with no_free_descriptor() as taken, taking_each(taken):
            async with asyncio.timeout(20):
                for client in clients:
                    client.setblocking(False)
                    assert await loop.sock_recv(client, 1) == b""
        assert not watch.done()


@contextlib.contextmanager
def taking_each(taken: list[int]) -> Iterator[None]:
    """Take each descriptor that becomes free, as soon as the call that closed it has returned."""

    def take(_frame: Any, event: str, _what: Any) -> None:
        if event == "c_return":
            with contextlib.suppress(OSError):
                taken.append(os.dup(0))

    sys.setprofile(take)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("warns", [True, False])
async def test_one_server_of_a_process_warns_that_no_descriptor_is_free(
    warns: bool,
) -> None:
    connections = Connections(idle_timeout=60, first_timeout=60, most=100, warns=warns)
    with capture_logs() as said:
        watch = asyncio.create_task(connections.watch(1))
        with no_free_descriptor():
            await asyncio.sleep(0)  # it has looked once
        watch.cancel()
    warnings = [line["event"] for line in said if line["log_level"] == "warning"]
    assert warnings == ["no file descriptor is free: closing idle connections"] * warns


def test_what_cannot_be_looked_at_is_looked_at_later() -> None:
    """Without a spare descriptor."""
    connections = Connections(idle_timeout=60, first_timeout=60, most=100)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        connections._port = listener.getsockname()[1]
        client = stack.enter_context(socket.create_connection(listener.getsockname()))
        stack.enter_context(listener.accept()[0])
        peer = connections.enter(client.getsockname())
        with no_free_descriptor():
            assert connections.received(peer) is None
            connections._tried_at = 0.0  # a second later
            with pytest.raises(OSError, match="Too many open files"):
                connections._end_idle()
        connections._end_idle()
        assert connections.open == 1


@contextlib.contextmanager
def no_free_descriptor() -> Iterator[list[int]]:
    """Yields those that it has taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 8, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield taken
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


async def test_idle_connections_make_room_for_those_that_ask(
    own_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a request that is in progress is not ended for it."""
    most = 24
    limits = ConnectionLimits(http=most, admin=0, grpc=0)
    monkeypatch.setattr(ConnectionLimits, "of", lambda _: limits)
    app = new_app(own_template, tmp_path)
    listener = open_listening_socket("127.0.0.1", 0)
    address = ServerAddress.of(listener)
    server = HttpServer(app, listener, max_connections=most)
    await server.start()
    watch = asyncio.create_task(app.state.connections.watch(address.port))
    head = b" HTTP/1.1\r\nHost: localhost\r\n"
    writers = []
    try:
        async with asyncio.timeout(60):
            busy, writer = await asyncio.open_connection(address.host, address.port)
            writers.append(writer)
            writer.write(b"POST /tokenize" + head + b"Content-Length: 2\r\n\r\n{")
            while not app.state.drain.in_flight:
                await asyncio.sleep(0.01)
            for _ in range(3 * most):
                _, idle = await asyncio.open_connection(address.host, address.port)
                writers.append(idle)
            reader, asking = await asyncio.open_connection(address.host, address.port)
            writers.append(asking)
            asking.write(b"GET /health/live" + head + b"\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.write(b"}")
            assert (await busy.readline()).startswith(b"HTTP/1.1 400")
    finally:
        for writer in writers:
            writer.close()
        watch.cancel()
        await server.shut_down_app()
        assert await server.stop(20)


class Waiting:
    """Reads each request, then waits for its client to leave."""

    def __init__(self, connections: Connections) -> None:
        origins = OriginRules(origins=(), hosts=None, guarded=False)
        self._door = Door(origins, connections, versioned=frozenset(), patience=60)
        self.begun = asyncio.Event()
        self.heard: list[str] = []
        self.left = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for done in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{done}.complete"})
        else:
            await self._door.serve(self._answer, scope, receive, send)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        self.begun.set()
        self.heard.append((await receive())["type"])
        self.left.set()
        await send({"type": "http.response.start", "status": 499, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
@pytest.mark.parametrize("ahead", [b"", b"\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"])
@pytest.mark.parametrize("way", ["closes", "resets", "sends no more"])
async def test_a_client_that_sent_something_ahead_is_seen_to_leave(ahead: bytes, way: str) -> None:
    connections = Connections(idle_timeout=60, first_timeout=60, most=100)
    app = Waiting(connections)
    listener = open_listening_socket("127.0.0.1", 0)
    address = ServerAddress.of(listener)
    server = HttpServer(app, listener)
    await server.start()
    watch = asyncio.create_task(connections.watch(address.port))
    client = socket.create_connection((address.host, address.port))
    try:
        async with asyncio.timeout(20):
            client.sendall(
                b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}" + ahead
            )
            await app.begun.wait()
            while not connections.open:  # one that is reset before is not found
                await asyncio.sleep(0.01)
            if way == "sends no more":
                client.shutdown(socket.SHUT_WR)
            else:
                if way == "resets":
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
            # A reset connection has no address any more, but is not forgotten.
            connections._look(time.monotonic(), again=True)
            await app.left.wait()
        assert app.heard[0] == "http.disconnect"
    finally:
        client.close()
        watch.cancel()
        await server.shut_down_app()
        assert await server.stop(20)
