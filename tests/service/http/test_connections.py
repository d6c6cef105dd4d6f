"""Looking for clients' connections among the descriptors of the process."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from service.http.connections import Connections

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
def test_what_has_been_read_of_a_connection_is_known() -> None:
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
