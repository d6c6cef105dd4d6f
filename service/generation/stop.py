"""Stop strings in a stream of text, across the cuts between pieces."""

from __future__ import annotations


class StopMatcher:
    """Gives text out as soon as it can no longer belong to a stop string.

    Of several stop strings the one that is complete first wins; among those complete at the same
    character, the longest. After a match nothing more may be pushed.
    """

    __slots__ = ("_firsts", "_held", "_include", "_longest", "_stops", "matched")

    def __init__(self, stops: tuple[str, ...], *, include_in_output: bool = False) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._firsts = frozenset(stop[0] for stop in self._stops)
        self._longest = max(map(len, self._stops), default=0)
        self._include = include_in_output
        self._held = ""
        self.matched: str | None = None

    def push(self, piece: str) -> str:
        """The text now free to go out; sets ``matched`` when a stop string is complete."""
        if not self._stops:
            return piece
        text = self._held + piece
        found = self._first_complete(text)
        if found is not None:
            end, stop = found
            self.matched = stop
            self._held = ""
            return text[:end] if self._include else text[: end - len(stop)]
        held = self._possible_start(text)
        cut = len(text) - held
        self._held = text[cut:]
        return text[:cut]

    def flush(self) -> str:
        """What was held back, when no further text comes."""
        held, self._held = self._held, ""
        return held

    def _first_complete(self, text: str) -> tuple[int, str] | None:
        best: tuple[int, int, str] | None = None
        for stop in self._stops:
            start = text.find(stop)
            if start >= 0:
                candidate = (start + len(stop), -len(stop), stop)
                best = candidate if best is None else min(best, candidate)
        return None if best is None else (best[0], best[2])

    def _possible_start(self, text: str) -> int:
        """Length of the longest end of ``text`` that begins a stop string."""
        most = min(self._longest - 1, len(text))
        if most <= 0 or self._firsts.isdisjoint(text[-most:]):
            return 0
        for length in range(most, 0, -1):
            tail = text[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
