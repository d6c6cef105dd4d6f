"""Looking for clients' connections among the descriptors of the process."""

from __future__ import annotations

import asyncio
import fcntl
import subprocess
import sys
from pathlib import Path

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
