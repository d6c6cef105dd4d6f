"""Typed messages over a blocking socket between rank 0 and another rank."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any, Generic, TypeVar

import msgspec

from engine.frames import FrameReader
from engine.messages import FRAME_HEADER
from engine.ranks.messages import FromHost, FromRank, ToHost, ToRank

_RECEIVE_BYTES = 1 << 18
# A step's plan may contain every token of every prompt that begins in it.
_MAX_FRAME_BYTES = 1 << 30
# What a rank reports; its longest message is an error's text.
MAX_REPORT_BYTES = 1 << 20

_encoder = msgspec.msgpack.Encoder()

M = TypeVar("M")


def encode_message(message: ToRank | FromRank | ToHost | FromHost) -> bytes:
    """Encode one frame."""
    body = _encoder.encode(message)
    return FRAME_HEADER.pack(len(body)) + body


class Channel(Generic[M]):
    """One end; ``M`` is the type of incoming messages, none of which may be longer than
    ``max_bytes``. Sending is safe from several threads.

    Reading raises FrameTooLargeError or msgspec.DecodeError when the other end breaks these rules.
    """

    def __init__(
        self, connection: socket.socket, incoming: Any, max_bytes: int = _MAX_FRAME_BYTES
    ) -> None:
        self._socket = connection
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(incoming)
        self._reader = FrameReader(max_bytes)
        self._sending = threading.Lock()
        self._arrived: list[bytes] = []

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: bytes) -> None:
        """Raises OSError when the other end is gone."""
        with self._sending:
            self._socket.sendall(frame)

    def read(self) -> list[M] | None:
        """Wait for data and return the messages it completes. None at the end."""
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except OSError:  # also when another host no longer answers
            return None
        return [self._decoder.decode(body) for body in self._reader.feed(data)] if data else None

    def receive(self, deadline: float | None = None) -> M | None:
        """Wait for the next message and return it. None at the end, or at ``deadline`` (of
        ``time.monotonic``), with which the socket is left with a timeout."""
        while not self._arrived:
            try:
                if deadline is not None:
                    self._socket.settimeout(max(0.0, deadline - time.monotonic()))
                data = self._socket.recv(_RECEIVE_BYTES)
            except OSError:
                return None
            if not data:
                return None
            self._arrived = self._reader.feed(data)
        return self._decoder.decode(self._arrived.pop(0))

    def shutdown(self) -> None:
        """Close the sending side; the other end can still read what was sent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """End both directions, so that no thread waits for the other end any longer."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()
