"""Text that is still arriving, for parsers written as if it were all there.

A parser is a generator: it yields when it needs more text to decide, and the output parser feeds
it. It therefore decides the same however the text is split. Consumed text is dropped from the
buffer, so parsing takes linear time.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass

Waiting = Generator[None, None, None]
Emit = Callable[[str], None]
_Search = Callable[[str, int, int], re.Match[str] | None]

_SPACE = re.compile(r"\s*")
_MOST_SPACE_AHEAD = 256


class EndOfTextError(Exception):
    """A parser needs more text, but the output has ended."""


class NotACallError(Exception):
    """Text that looked like a call is not one."""


class Stop(enum.Enum):
    """What one of the format's tags means inside a value."""

    TEXT = enum.auto()  # spelled out in several tokens although the tag has its own token
    PERHAPS = enum.auto()  # the value may be a text about such tags
    CERTAIN = enum.auto()


@dataclass(frozen=True, slots=True)
class Stops:
    """Tags that end the current value wherever they appear, unless the value continues correctly
    after them. ``kind``: returns what the tag at an offset of the text means."""

    tags: tuple[str, ...] = ()
    kind: Callable[[str, int], Stop] = lambda tag, offset: Stop.PERHAPS


class Source:
    """A buffer of arriving text. ``offset`` counts the characters consumed, from the start of the
    output. Text consumed between ``watch`` and ``settle`` may turn out to be plain text, and is
    kept as ``unsettled``. ``truncated``: the text ended because the model was cut off."""

    __slots__ = (
        *("_ended", "_position", "_read", "_text", "_watching"),
        *("_stops", "offset", "stop_tags", "truncated"),
    )

    def __init__(self, text: str, offset: int, stops: Stops | None = None) -> None:
        self.offset = offset
        self._stops = stops or Stops()
        self.stop_tags = self._stops.tags
        self._text = text
        self._position = 0
        self._read: list[str] = []
        self._watching = True
        self._ended = False
        self.truncated = False

    # --- for the parser --------------------------------------------------------------------------

    def feed(self, text: str) -> None:
        self._text = self._text[self._position :] + text
        self._position = 0

    def end(self, *, truncated: bool) -> None:
        self._ended = True
        self.truncated = truncated

    @property
    def rest(self) -> str:
        """The text not consumed yet."""
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
        """Consume the next ``size`` characters, which must have arrived."""
        start = self._position
        self._position = start + size
        self.offset += size
        text = self._text[start : start + size]
        if self._watching:
            self._read.append(text)
        return text

    def white_space(self) -> Generator[None, None, str]:
        """Consume white space, if there is any, and return it."""
        pieces: list[str] = []
        yield from self.run(_SPACE, pieces.append)
        return "".join(pieces)

    def space(self) -> Waiting:
        """Consume white space. Raises EndOfTextError if nothing follows it."""
        while True:
            match = _SPACE.match(self._text, self._position)
            assert match is not None
            self.take(match.end() - self._position)
            if self._position < len(self._text):
                return
            yield from self.more()

    def peek(self, size: int = 1) -> Generator[None, None, str]:
        """Return the next characters without consuming them; fewer only at the end of the text."""
        while len(self._text) - self._position < size and not self._ended:
            yield
        return self._text[self._position : self._position + size]

    def at(self, *literals: str) -> Generator[None, None, str | None]:
        """Return which of these literals comes next; none may be a prefix of another. Raises
        EndOfTextError if the text ends inside one."""
        while True:
            text, position = self._text, self._position
            for literal in literals:
                if text.startswith(literal, position):
                    return literal
            if not self._may_become(literals, position):
                return None
            yield from self.more()

    def accept(self, *literals: str) -> Generator[None, None, str | None]:
        """Like ``at``, but consume the literal."""
        found = yield from self.at(*literals)
        if found is not None:
            self.take(len(found))
        return found

    def ahead(self, *literals: str) -> Generator[None, None, bool]:
        """True if one of these comes next after any white space, or if the text ends first."""
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

    def stop(self, tag: str, ahead: int = 0) -> Stop:
        """Return what the format's own tag means here, or ``ahead`` characters further on."""
        return self._stops.kind(tag, self.offset + ahead)

    def stretch(self, *literals: str) -> Generator[None, None, tuple[str, str | None]]:
        """Return the text that is certain to precede the first of these literals, and which literal
        it is if it follows directly. Consumes nothing. The text is empty only if a literal comes
        next.

        Raises EndOfTextError at the end of the text.
        """
        known = literals_of(literals)
        while (ready := self.ready(known)) is None:
            yield from self.more()
        return ready

    def ready(self, known: Literals, limit: int | None = None) -> tuple[str, str | None] | None:
        """Like ``stretch``, but without waiting; None if more text is needed. With ``limit``,
        search no further than that; the returned text is longer than ``limit`` if it contains no
        literal."""
        text, position = self._text, self._position
        end = len(text)
        if limit is not None:
            end = min(end, position + limit + 1 + known.longest)
        if known.begins(text, position, end) is None:
            return (text[position:end], None) if position < end else None
        found = known.search(text, position, end)
        is_all = self._ended or end < len(text)
        certain = end if is_all else end - known.possible(text, position)
        if found is not None and found.start() < certain:
            return text[position : found.start()], found[0]
        return (text[position:certain], None) if certain > position else None

    def until(
        self, *literals: str, emit: Emit, keep: bool = False, limit: int | None = None
    ) -> Generator[None, None, str]:
        """Emit everything before the first of these literals, and consume the literal too unless
        ``keep``. ``limit``: in characters, for an ``emit`` that raises beyond it.

        Raises EndOfTextError after emitting everything.
        """
        known = literals_of(literals)
        while True:
            ready = self.ready(known, limit)
            if ready is None:
                if self._ended:
                    raise EndOfTextError
                yield
                continue
            text, found = ready
            if text:
                emit(self.take(len(text)))
            if found is not None:
                if not keep:
                    self.take(len(found))
                return found

    def find(self, start: int, *literals: str) -> Generator[None, None, tuple[int, str | None]]:
        """Return the distance to the first of these literals, at least ``start`` characters ahead,
        and which it is; None if the text ends first. Consumes nothing."""
        known = literals_of(literals)
        while True:
            text, position = self._text, self._position
            found = known.search(text, position + start, len(text))
            certain = len(text)
            if not self._ended:
                certain -= known.possible(text, min(position + start, len(text)))
            if found is not None and found.start() < certain:
                return found.start() - position, found[0]
            if self._ended:
                return len(text) - position, None
            start = max(start, certain - position)
            yield

    def solid(self, start: int) -> Generator[None, None, tuple[int, str]]:
        """Return the distance to the first character other than white space, at least ``start``
        characters ahead, and that character; empty at the end of the text. Consumes nothing."""
        while True:
            match = _SPACE.match(self._text, self._position + start)
            assert match is not None
            if match.end() < len(self._text):
                return match.end() - self._position, self._text[match.end()]
            if self._ended:
                return match.end() - self._position, ""
            start = max(start, match.end() - self._position)
            yield

    def spells(self, *parts: str, start: int = 0) -> Generator[None, None, bool]:
        """True if these parts come next, ``start`` characters ahead, with optional white space
        before each."""
        for part in parts:
            at, _ = yield from self.solid(start)
            start = at + len(part)
            if part != (yield from self.peek(start))[at:]:
                return False
        return True

    def text_until(
        self, *literals: str, limit: int, keep: bool = False
    ) -> Generator[None, None, str]:
        """Return the text before the first of these. Raises NotACallError if it exceeds ``limit``
        characters or one of the format's own tags comes first, and EndOfTextError."""
        pieces: list[str] = []
        size = 0

        def collect(piece: str) -> None:
            nonlocal size
            size += len(piece)
            if size > limit:
                raise NotACallError
            pieces.append(piece)

        ends = (*literals, *self.stop_tags)
        found = yield from self.until(*ends, emit=collect, keep=True, limit=limit)
        if found not in literals:
            raise NotACallError
        if not keep:
            self.take(len(found))
        return "".join(pieces)

    def run(self, pattern: re.Pattern[str], emit: Emit) -> Waiting:
        """Emit characters as long as they match ``pattern``, a repeated character class."""
        while True:
            match = pattern.match(self._text, self._position)
            size = match.end() - self._position if match else 0
            if size:
                emit(self.take(size))
            if self._position < len(self._text) or self._ended:
                return
            yield

    def _may_become(self, literals: tuple[str, ...], position: int) -> bool:
        """True if all remaining text is a proper prefix of one of these."""
        there = len(self._text) - position
        return any(
            there < len(literal) and literal.startswith(self._text[position:])
            for literal in literals
        )


class Literals:
    """Finds the first of several literals; the longest if several begin at the same place."""

    __slots__ = ("_firsts", "_literals", "begins", "longest", "search")

    def __init__(self, literals: tuple[str, ...]) -> None:
        longest_first = sorted(literals, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest_first)) if literals else r"(?!)"
        self.search: _Search = re.compile(pattern).search
        firsts = "".join(re.escape(char) for char in sorted({literal[0] for literal in literals}))
        # Where a literal may begin.
        self.begins: _Search = re.compile(f"[{firsts}]" if literals else r"(?!)").search
        self._literals = tuple(literal for literal in longest_first if len(literal) > 1)
        self.longest = max(map(len, literals), default=1)
        self._firsts = "".join(sorted({literal[0] for literal in self._literals}))

    def possible(self, text: str, position: int) -> int:
        """Return the length of the longest suffix of the text that may begin a literal."""
        start = max(position, len(text) - self.longest + 1)
        if not any(text.find(first, start) >= 0 for first in self._firsts):
            return 0
        for at in range(start, len(text)):
            if text[at] in self._firsts:
                end = text[at:]
                for literal in self._literals:
                    if len(literal) > len(end) and literal.startswith(end):
                        return len(end)
        return 0


literals_of = functools.lru_cache(maxsize=512)(Literals)
