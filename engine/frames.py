"""Splits a byte stream into the frames that ``engine.messages`` describes."""

from __future__ import annotations

from engine.messages import FRAME_HEADER, MAX_FRAME_BYTES


class FrameTooLargeError(ValueError):
    """A header announces more bytes than a frame may have."""


class FrameReader:
    """Accepts bytes as they arrive and returns whole frame bodies in order."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the bodies that ``data`` completes.

        Raises FrameTooLargeError as soon as a header is too large, before its body is stored.
        """
        buffer = self._buffer
        buffer += data
        bodies = []
        position, size = 0, FRAME_HEADER.size
        while len(buffer) - position >= size:
            (length,) = FRAME_HEADER.unpack_from(buffer, position)
            if length > self._max_frame_bytes:
                raise FrameTooLargeError(
                    f"a frame of {length} bytes; at most {self._max_frame_bytes} are allowed"
                )
            end = position + size + length
            if len(buffer) < end:
                break
            bodies.append(bytes(buffer[position + size : end]))
            position = end
        del buffer[:position]
        return bodies
