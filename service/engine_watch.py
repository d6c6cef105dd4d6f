"""Ends an engine that hangs, so that another can take its place: it neither answers nor dies."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
from collections.abc import Callable

from engine.messages import Ready
from observability.logging import get_logger

GPU_TIMEOUT_SECONDS = 60.0
_MOST_TICK_SECONDS = 1.0
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: Linux's struct ucred

_log = get_logger()


def hang_timeout(setting: float | None, ready: Ready) -> float:
    """After how many seconds of silence an engine hangs; 0: that cannot be told. A step on a GPU
    takes milliseconds. On a CPU it takes as long as the model is large."""
    if setting is not None:
        return setting
    return GPU_TIMEOUT_SECONDS if ready.device.startswith("cuda") else 0.0


def process_behind(connection: socket.socket) -> int:
    """The id of the process at the other end of a unix socket. Raises OSError."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(data)[0]
    if pid <= 0:  # which no signal must be sent to
        raise OSError("the process at the other end is of another process namespace")
    return pid


async def kill_when_silent(pid: int, heard: Callable[[], float | None], timeout: float) -> None:
    """Wait until nothing new is ``heard`` for ``timeout`` seconds, then kill the process.

    ``heard()`` is the time of its last message. Only time in which this process was awake itself
    counts: after both stood still (a frozen container), the engine has its time to speak.
    """
    tick = min(_MOST_TICK_SECONDS, timeout / 4)
    last, silent = heard(), 0.0
    while silent < timeout:
        await asyncio.sleep(tick)
        silent = silent + tick if heard() == last else 0.0
        last = heard()
    _log.error("the engine hangs: it is killed", pid=pid, silent_seconds=round(silent, 1))
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError as error:
        _log.error("the engine could not be killed", pid=pid, error=str(error))
