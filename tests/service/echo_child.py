"""A child process that is ready at once and answers each frame with its own process id; to
``wait`` it only says that it has begun."""

from __future__ import annotations

import os
import signal
import sys

from engine.messages import FRAME_HEADER


def main() -> None:
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    answer = b""
    while True:
        sink.write(FRAME_HEADER.pack(len(answer)) + answer)
        sink.flush()
        header = source.read(FRAME_HEADER.size)
        if len(header) < FRAME_HEADER.size:
            return
        waits = source.read(FRAME_HEADER.unpack(header)[0]) == b"wait"
        answer = str(os.getpid()).encode()
        if waits:
            sink.write(FRAME_HEADER.pack(5) + b"begun")
            sink.flush()
            signal.pause()


if __name__ == "__main__":
    main()
