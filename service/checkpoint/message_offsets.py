"""Where in a prompt's text each message of the conversation begins, observed while the template
writes it.

Jinja writes the text piece by piece as the template runs, so what it writes after reading from a
message, and before reading from another one, belongs to that message. The text itself is never
looked at. What a template writes between two messages may count as part of either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from service.conversation import JsonObject


class MessageOffsets:
    """Pass what ``watched`` returns to the template, and what it writes through ``follow``; then
    ``starts`` returns the offsets."""

    def __init__(self) -> None:
        self.read = 0  # index of the message that the template read from last
        self.messages: list[JsonObject] = []
        self._says_nothing: list[bool] = []
        self._owners: list[tuple[int, int]] = []  # offset, index of the message from there on
        self._size = 0

    def watched(self, messages: list[JsonObject]) -> list[JsonObject]:
        """Return the messages such that they report when they are read."""
        self.messages = [_Message(message, index, self) for index, message in enumerate(messages)]
        self._says_nothing = [not any(map(message.get, _SAYS)) for message in messages]
        return self.messages

    def follow(self, pieces: Iterable[str]) -> Iterator[str]:
        size, owner = 0, -1
        for piece in pieces:
            if self.read != owner:
                owner = self.read
                self._owners.append((size, owner))
            size += len(piece)
            yield piece
        self._size = size

    def starts(self) -> list[int] | None:
        """Return the offset of each message's first character, the first one's being 0; None if the
        template does not write the messages one after the other, or there are none."""
        if not self.messages:
            return None
        starts: list[int] = []
        # A message that is read in passing, before its turn, does not begin there.
        owners = accumulate((owner for _, owner in reversed(self._owners)), min)
        for (offset, _), owner in zip(self._owners, reversed(list(owners)), strict=True):
            starts += [offset] * (owner + 1 - len(starts))
        starts += [self._size] * (len(self.messages) - len(starts))
        ends = [*starts[1:], self._size]
        missing = (
            begin == end and not silent
            for begin, end, silent in zip(starts, ends, self._says_nothing, strict=True)
        )
        return None if any(missing) else starts


# The fields of a message that a template has to write.
_SAYS = ("content", "tool_calls")


class _Message(dict[str, Any]):
    """A message that reports when it is read."""

    __slots__ = ("_index", "_offsets")

    def __init__(self, message: JsonObject, index: int, offsets: MessageOffsets) -> None:
        super().__init__(message)
        self._index = index
        self._offsets = offsets

    def __getitem__(self, key: str) -> Any:
        self._offsets.read = self._index
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._offsets.read = self._index
        return super().get(key, default)

    def items(self) -> Any:
        self._offsets.read = self._index
        return super().items()
