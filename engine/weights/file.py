"""A file of weights, read by offset.

It is read and never mapped: a mapped file that someone cuts short kills the process that reads it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from engine.architecture.errors import WeightsError


class TensorFile:
    """An open file that is read by offset, from any thread."""

    def __init__(self, path: Path) -> None:
        """Raises WeightsError."""
        self.path = path
        try:
            # Without O_NONBLOCK, opening a pipe of this name would block.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise WeightsError(f"cannot read {path}: {error.strerror}") from error
        status = os.fstat(self._descriptor)
        self.size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise WeightsError(f"cannot read {path}: it is not a file")

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill ``buffer`` (of bytes) with the data at ``offset``. Raises WeightsError."""
        while buffer:
            try:
                count = os.preadv(self._descriptor, [buffer], offset)
            except OSError as error:
                raise self.failure(error.errno or 0, offset) from error
            if count == 0:
                raise self.failure(0, offset)
            buffer = buffer[count:]
            offset += count

    def fileno(self) -> int:
        """Return the descriptor, for code that reads by itself."""
        return self._descriptor

    def failure(self, number: int, offset: int) -> WeightsError:
        """Return the error of a read at ``offset`` that failed with the errno ``number``; 0: the
        file ends there."""
        if number:
            return WeightsError(f"cannot read {self.path}: {os.strerror(number)}")
        end = min(offset, os.fstat(self._descriptor).st_size)  # the read may begin after it
        return WeightsError(f"cannot read {self.path}: it ends at byte {end}")

    def close(self) -> None:
        """No read may be in progress."""
        os.close(self._descriptor)
