"""A test's end of the engine's socket: blocking, with a deadline on every wait."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeVar

from engine.frames import FrameReader
from engine.messages import (
    Finished,
    FromEngine,
    Generate,
    SamplingParams,
    StepOutputs,
    Submit,
    ToEngine,
    decode_from_engine,
    encode_frame,
)

DEADLINE_SECONDS = 60.0

M = TypeVar("M")


class EngineClient:
    """One connection. ``heard`` is every message so far; waiting adds to it."""

    def __init__(self, path: Path) -> None:
        self.heard: list[FromEngine] = []
        self.tokens: dict[int, list[int]] = {}
        self.finished: dict[int, Finished] = {}
        self._reader = FrameReader()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(DEADLINE_SECONDS)
        self.socket.connect(str(path))

    def send(self, message: ToEngine) -> None:
        self.socket.sendall(encode_frame(message))

    def submit(
        self,
        handle: int,
        prompt: list[int],
        max_tokens: int,
        request_id: str | None = None,
    ) -> None:
        self.send(
            Submit(
                handle=handle,
                request_id=request_id or f"r{handle}",
                prompt_token_ids=prompt,
                task=Generate(
                    SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
                ),
                arrival_time=time.monotonic(),
            )
        )

    def hear(self) -> list[FromEngine]:
        """Wait for messages. Raises EOFError when the engine has closed the connection."""
        while True:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                raise EOFError("the engine closed the connection")
            messages = [decode_from_engine(body) for body in self._reader.feed(data)]
            for message in messages:
                self._note(message)
            if messages:
                return messages

    def _note(self, message: FromEngine) -> None:
        self.heard.append(message)
        if isinstance(message, StepOutputs):
            count = len(message.token_ids) // 4
            handles = struct.unpack(f"<{count}q", message.handles)
            for handle, token_id in zip(
                handles, struct.unpack(f"<{count}i", message.token_ids), strict=True
            ):
                self.tokens.setdefault(handle, []).append(token_id)
            for finished in message.finished:
                self.finished[finished.handle] = finished

    def wait(self, kind: type[M], condition: Callable[[M], bool] = lambda _: True) -> M:
        """The next message of a kind for which the condition holds, from now on."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            for message in self.hear():
                if isinstance(message, kind) and condition(message):
                    return message
        raise TimeoutError(f"no such {kind.__name__}")

    def wait_finished(self, *handles: int) -> None:
        while not set(handles) <= set(self.finished):
            self.hear()

    def wait_closed(self) -> None:
        with contextlib.suppress(EOFError):
            while True:
                self.hear()

    def close(self) -> None:
        self.socket.close()


@contextlib.contextmanager
def running_engine(
    argv: list[str], path: Path, stderr: IO[bytes] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A started engine whose socket answers; killed at the end if it still runs."""
    process = subprocess.Popen(argv, cwd=Path(__file__).resolve().parents[2], stderr=stderr)
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not path.exists():
            assert process.poll() is None, "the engine ended before it bound its socket"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
