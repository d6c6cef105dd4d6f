"""Duplicates of descriptors, even when no number is free for them."""

from __future__ import annotations

import contextlib
import errno
import os

# The process, or the machine, has no descriptor left.
NO_NUMBER = (errno.EMFILE, errno.ENFILE)


class SpareDescriptor:
    """Makes duplicates of descriptors, even when no number is free: then with one that it keeps
    for that. It never closes that one, since another thread, such as the one that accepts
    connections, would take the number at once. There is one such duplicate at a time."""

    def __init__(self) -> None:
        self._null: int | None = None
        self._number: int | None = None
        self.was_needed = False

    def refill(self) -> None:
        self.was_needed = False
        with contextlib.suppress(OSError):
            if self._null is None:
                self._null = os.open(os.devnull, os.O_RDONLY)
            if self._number is None:
                self._number = os.dup(self._null)

    def empty(self) -> None:
        for descriptor in (self._null, self._number):
            if descriptor is not None:
                os.close(descriptor)
        self._null = self._number = None

    def duplicate(self, descriptor: int) -> int:
        """Raises OSError."""
        try:
            return os.dup(descriptor)
        except OSError as error:
            if error.errno not in NO_NUMBER:
                raise
            self.was_needed = True
            if self._number is None:
                raise
        return os.dup2(descriptor, self._number, inheritable=False)

    def release(self, duplicate: int) -> None:
        """Close what ``duplicate`` returned."""
        if self._null is not None and duplicate == self._number:
            os.dup2(self._null, duplicate, inheritable=False)
        else:
            os.close(duplicate)

    def abandon(self, duplicate: int) -> None:
        """Leave it open for good."""
        if duplicate == self._number:
            self._number = None
