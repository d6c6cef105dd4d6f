"""Finds stop strings in a stream of text, even if they are split across pieces."""

from __future__ import annotations

import functools


class StopAutomaton:
    """Tracks which suffix of the text begins a stop string, in constant time per character however
    the strings overlap (Aho and Corasick, 1975).

    A state is the index of the longest such suffix; 0: there is none. ``lengths[state]`` is its
    length in characters, ``complete[state]`` the longest stop string that it ends with.
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
        """Set each state's failure link, shorter states first."""
        queue = list(self._edges[0].values())
        for state in queue:
            for char, following in self._edges[state].items():
                self._fails[following] = self.step(self._fails[state], char)
                if self.complete[following] is None:
                    self.complete[following] = self.complete[self._fails[following]]
                queue.append(following)

    def step(self, state: int, char: str) -> int:
        """Return the state after one more character."""
        while True:
            following = self._edges[state].get(char)
            if following is not None:
                return following
            if state == 0:
                return 0
            state = self._fails[state]


@functools.lru_cache(maxsize=8)
def _automaton(stops: tuple[str, ...]) -> StopAutomaton:
    """Return the automaton, which all choices of a request share."""
    return StopAutomaton(stops)


class StopMatcher:
    """Releases text as soon as it can no longer belong to a stop string.

    The stop string that is complete first wins; if several are complete at the same character, the
    longest. Push nothing after a match. ``held``: the text held back.
    """

    __slots__ = ("_automaton", "_include", "_state", "held", "matched")

    def __init__(self, stops: tuple[str, ...], *, include_in_output: bool = False) -> None:
        stops = tuple(stop for stop in stops if stop)
        self._automaton = _automaton(stops) if stops else None
        self._include = include_in_output
        self._state = 0
        self.held = ""
        self.matched: str | None = None

    def push(self, piece: str) -> str:
        """Return the text released; set ``matched`` when a stop string is complete."""
        automaton = self._automaton
        if automaton is None or (self._state == 0 and automaton.firsts.isdisjoint(piece)):
            return piece
        state, step, complete = self._state, automaton.step, automaton.complete
        for place, char in enumerate(piece, start=1):
            state = step(state, char)
            stop = complete[state]
            if stop is not None:
                self.matched = stop
                text, self.held = self.held + piece[:place], ""
                return text if self._include else text[: len(text) - len(stop)]
        self._state = state
        text = self.held + piece
        cut = len(text) - automaton.lengths[state]
        self.held = text[cut:]
        return text[:cut]

    def flush(self) -> str:
        """Return the text still held back: at the end of the text, or where other text follows."""
        held, self.held = self.held, ""
        self._state = 0
        return held
