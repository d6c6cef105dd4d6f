"""Text that is still arriving, for readers written as if it were all there.

A reader is a generator: it yields when it cannot decide without more text, and whoever drives it
feeds more in. It therefore decides the same however the text was cut. What it has read is dropped
from the buffer, so that reading is linear.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Generator

Waiting = Generator[None, None, None]
Emit = Callable[[str], None]

_SPACE = re.compile(r"\s*")
_MOST_SPACE_AHEAD = 256


class EndOfTextError(Exception):
    """A reader needs more, and no more will come."""


class NotACallError(Exception):
    """What looked like a call is none."""


class Source:
    """``offset`` counts the characters read so far, from where the text began. What is read between
    ``watch`` and ``settle`` may turn out to be nothing but text, and is kept as ``unsettled``.
    ``truncated``: the text ended where the model was cut off."""

    __slots__ = ("_ended", "_position", "_read", "_text", "_watching", "offset", "truncated")

    def __init__(self, text: str, offset: int) -> None:
        self.offset = offset
        self._text = text
        self._position = 0
        self._read: list[str] = []
        self._watching = True
        self._ended = False
        self.truncated = False

    # --- for whoever drives the reader -----------------------------------------------------------

    def feed(self, text: str) -> None:
        self._text = self._text[self._position :] + text
        self._position = 0

    def end(self, *, truncated: bool) -> None:
        self._ended = True
        self.truncated = truncated

    @property
    def rest(self) -> str:
        """What was not read."""
        return self._text[self._position :]

    @property
    def unsettled(self) -> str:
        return "".join(self._read)

    def settle(self) -> None:
        self._read.clear()
        self._watching = False

    def watch(self) -> None:
        self._watching = True

    # --- for readers -----------------------------------------------------------------------------

    def more(self) -> Waiting:
        """Wait for more text. Raises EndOfTextError."""
        if self._ended:
            raise EndOfTextError
        yield

    def take(self, size: int) -> str:
        """Read the next ``size`` characters, which must be there."""
        start = self._position
        self._position = start + size
        self.offset += size
        text = self._text[start : start + size]
        if self._watching:
            self._read.append(text)
        return text

    def space(self) -> Waiting:
        """Read white space up to something else. Raises EndOfTextError."""
        while True:
            match = _SPACE.match(self._text, self._position)
            assert match is not None
            self.take(match.end() - self._position)
            if self._position < len(self._text):
                return
            yield from self.more()

    def peek(self, size: int = 1) -> Generator[None, None, str]:
        """The next characters, without reading them; fewer only at the end of the text."""
        while len(self._text) - self._position < size and not self._ended:
            yield
        return self._text[self._position : self._position + size]

    def at(self, *literals: str) -> Generator[None, None, str | None]:
        """Which of these (none of them the start of another) stands here. Raises EndOfTextError
        where the text ends inside one."""
        while True:
            text, position = self._text, self._position
            for literal in literals:
                if text.startswith(literal, position):
                    return literal
            if not self._may_become(literals, position):
                return None
            yield from self.more()

    def accept(self, *literals: str) -> Generator[None, None, str | None]:
        """The same, and read it."""
        found = yield from self.at(*literals)
        if found is not None:
            self.take(len(found))
        return found

    def ahead(self, *literals: str) -> Generator[None, None, bool]:
        """Whether one of these stands here behind any white space, or nothing more comes."""
        while True:
            match = _SPACE.match(self._text, self._position)
            assert match is not None
            after = match.end()
            if any(self._text.startswith(literal, after) for literal in literals):
                return True
            possible = self._may_become(literals, after)
            if self._ended or not possible:
                return possible
            if after - self._position > _MOST_SPACE_AHEAD:
                return True
            yield

    def until(self, *literals: str, emit: Emit, keep: bool = False) -> Generator[None, None, str]:
        """Emit everything before the first of these, and read it too unless ``keep``.

        Raises EndOfTextError, with all there was emitted.
        """
        search = _search(literals)
        longest = max(map(len, literals)) - 1
        while True:
            text, position = self._text, self._position
            found = search(text, position)
            certain = len(text)
            if not self._ended:
                certain -= _possible(text, position, literals, longest)
            if found is not None and found.start() <= certain:
                if found.start() > position:
                    emit(self.take(found.start() - position))
                if not keep:
                    self.take(len(found[0]))
                return found[0]
            if certain > position:
                emit(self.take(certain - position))
            yield from self.more()

    def text_until(
        self, *literals: str, limit: int, keep: bool = False
    ) -> Generator[None, None, str]:
        """The text before the first of these. Raises NotACallError for more than ``limit``
        characters, and EndOfTextError."""
        pieces: list[str] = []
        size = 0

        def collect(piece: str) -> None:
            nonlocal size
            size += len(piece)
            if size > limit:
                raise NotACallError
            pieces.append(piece)

        yield from self.until(*literals, emit=collect, keep=keep)
        return "".join(pieces)

    def run(self, pattern: re.Pattern[str], emit: Emit) -> Waiting:
        """Emit characters as long as they match ``pattern``, a class of characters repeated; up to
        the first other one, or the text's end."""
        while True:
            match = pattern.match(self._text, self._position)
            size = match.end() - self._position if match else 0
            if size:
                emit(self.take(size))
            if self._position < len(self._text) or self._ended:
                return
            yield

    def _may_become(self, literals: tuple[str, ...], position: int) -> bool:
        """Whether all text from here on is the proper start of one of these."""
        there = len(self._text) - position
        return any(
            there < len(literal) and literal.startswith(self._text[position:])
            for literal in literals
        )


@functools.lru_cache(maxsize=512)
def _search(literals: tuple[str, ...]) -> Callable[[str, int], re.Match[str] | None]:
    longest_first = sorted(literals, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))).search


def _possible(text: str, position: int, literals: tuple[str, ...], longest: int) -> int:
    """Length of the longest end of the text that may turn out to begin one of ``literals``."""
    for size in range(min(longest, len(text) - position), 0, -1):
        end = text[-size:]
        if any(len(literal) > size and literal.startswith(end) for literal in literals):
            return size
    return 0
