"""Bounds the memory of large bodies: of requests while they arrive, and of answers until they are
sent."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

from service.errors import OverloadedError
from service.tenants.caller import Caller
from service.tenants.shares import share

# Not counted, so that small requests are admitted however many large ones are arriving.
FREE_BYTES = 64 * 1024
_LEAST_BYTES = 128 * 1024 * 1024
_LARGEST_BODIES = 4

# Called with the size of each piece before it is kept. Raises OverloadedError.
Gained = Callable[[int], None]


class UploadRoom:
    """At most ``most`` bytes, not counting the first ``FREE_BYTES`` of each body. If several keys
    share the server, each has a share. ``full``: the error's message."""

    def __init__(
        self, most: int, *, full: str = "Too many large request bodies are arriving at once"
    ) -> None:
        self._most = most
        self._full = full
        self._held: Counter[str] = Counter()

    @classmethod
    def for_bodies(cls, largest: int) -> UploadRoom:
        """For bodies of at most ``largest`` bytes each."""
        return cls(max(_LEAST_BYTES, _LARGEST_BODIES * largest))

    @classmethod
    def for_answers(cls, largest: int) -> UploadRoom:
        """For answers to requests of at most ``largest`` bytes each."""
        most = cls.for_bodies(largest)._most
        return cls(most, full="Too many large responses are in progress or being sent")

    @property
    def held(self) -> int:
        """Bytes counted for all bodies."""
        return self._held.total()

    @contextlib.contextmanager
    def arriving(self, caller: Caller) -> Iterator[Gained]:
        """Count the body of one request while it arrives, or one answer while it is kept."""
        owner = caller.owner
        size = counted = 0

        def gained(more: int) -> None:
            nonlocal size, counted
            size += more
            grown = max(0, size - FREE_BYTES) - counted
            if not grown:
                return
            if self._held[owner] + grown > self._most_of(caller) and self._held[owner] > counted:
                raise OverloadedError(f"{self._full}; retry later.")
            counted += grown
            self._held[owner] += grown

        try:
            yield gained
        finally:
            self._held[owner] -= counted
            if not self._held[owner]:
                del self._held[owner]

    def _most_of(self, caller: Caller) -> int:
        if not caller.shares:
            return self._most
        return share(self._most, len(self._held) - (caller.owner in self._held))
