"""Finds stop strings in a stream of text, also across pieces."""

from __future__ import annotations

import functools


class StopAutomaton:
    """Which end of the text so far begins a stop string, in constant time per character however the
    strings overlap (Aho and Corasick, 1975).

    A state is the number of the longest such end; 0: no end does. ``lengths[state]`` counts its
    characters, ``complete[state]`` is the longest stop string that it ends with.
    """

    __slots__ = ("_edges", "_fails", "complete", "firsts", "lengths")

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._edges: list[dict[str, int]] = [{}]
        self._fails = [0]
        self.lengths = [0]
        self.complete: list[str | None] = [None]
        self.firsts = frozenset(stop[0] for stop in stops)
        for stop in stops:
            self._add(stop)
        self._link()

    def _add(self, stop: str) -> None:
        state = 0
        for char in stop:
            following = self._edges[state].get(char)
            if following is None:
                following = self._edges[state][char] = len(self._edges)
                self._edges.append({})
                self._fails.append(0)
                self.lengths.append(self.lengths[state] + 1)
                self.complete.append(None)
            state = following
        self.complete[state] = stop

    def _link(self) -> None:
        """For each state the next shorter one; shorter states first."""
        queue = list(self._edges[0].values())
        for state in queue:
            for char, following in self._edges[state].items():
                self._fails[following] = self.step(self._fails[state], char)
                if self.complete[following] is None:
                    self.complete[following] = self.complete[self._fails[following]]
                queue.append(following)

    def step(self, state: int, char: str) -> int:
        """The state after one more character."""
        while True:
            following = self._edges[state].get(char)
            if following is not None:
                return following
            if state == 0:
                return 0
            state = self._fails[state]


@functools.lru_cache(maxsize=8)
def _automaton(stops: tuple[str, ...]) -> StopAutomaton:
    """Shared by all choices of a request."""
    return StopAutomaton(stops)


class StopMatcher:
    """Releases text as soon as it can no longer belong to a stop string.

    Of several stop strings the first to be complete wins; of those complete at the same character,
    the longest. After a match nothing more may be pushed.
    """

    __slots__ = ("_automaton", "_held", "_include", "_state", "matched")

    def __init__(self, stops: tuple[str, ...], *, include_in_output: bool = False) -> None:
        stops = tuple(stop for stop in stops if stop)
        self._automaton = _automaton(stops) if stops else None
        self._include = include_in_output
        self._state = 0
        self._held = ""
        self.matched: str | None = None

    def push(self, piece: str) -> str:
        """Returns the text released; sets ``matched`` when a stop string is complete."""
        automaton = self._automaton
        if automaton is None or (self._state == 0 and automaton.firsts.isdisjoint(piece)):
            return piece
        state, step, complete = self._state, automaton.step, automaton.complete
        for place, char in enumerate(piece, start=1):
            state = step(state, char)
            stop = complete[state]
            if stop is not None:
                self.matched = stop
                text, self._held = self._held + piece[:place], ""
                return text if self._include else text[: len(text) - len(stop)]
        self._state = state
        text = self._held + piece
        cut = len(text) - automaton.lengths[state]
        self._held = text[cut:]
        return text[:cut]

    def flush(self) -> str:
        """Returns the text held back, at the end of the output."""
        held, self._held = self._held, ""
        return held
