"""How a server is: one word, how serious it is, and why, in sentences."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from dashboard.poller import View
from dashboard.reading import RATE_SECONDS, Reading
from dashboard.server import State
from dashboard.words import count, duration

SILENT_SECONDS = 3.0
"""An engine that is well sends a message at least every two seconds, also during a long step."""
STALE_SECONDS = 5.0


class Level(enum.StrEnum):
    """How a value or a state is to be taken; the colours are the style sheet's."""

    CALM = "calm"
    WARNING = "warning"  # near a limit
    CRITICAL = "critical"  # users suffer


@dataclass(frozen=True, slots=True)
class Condition:
    word: str
    level: Level
    sentences: tuple[str, ...] = ()


_STATES = {
    State.READY: ("Ready", Level.CALM),
    State.DOWNLOADING: ("Downloading the model", Level.WARNING),
    State.LOADING: ("Loading the model", Level.WARNING),
    State.DRAINING: ("Draining", Level.WARNING),
    State.SILENT: ("Silent", Level.CRITICAL),
    State.FAILED: ("Failed", Level.CRITICAL),
    State.UNREACHABLE: ("Unreachable", Level.CRITICAL),
}


def condition(view: View) -> Condition:
    """What /health says, and what the newest reading says when /health has not noticed yet."""
    state, reading = view.health.state, view.latest if is_fresh(view) else None
    word, level = _STATES[state]
    sentences = [view.health.detail, view.problem]
    if reading is not None and state in (State.READY, State.SILENT):
        if is_silent(reading):
            word, level = _STATES[State.SILENT]
            sentences[0] = _silence(reading)
        elif state is State.READY and is_stuck(reading):
            word, level = "No progress", Level.WARNING
            sentences[0] = f"{_requests(reading)} in flight, but no token for {RATE_SECONDS:.0f} s."
    return Condition(word, level, tuple(dict.fromkeys(filter(None, sentences))))


def is_fresh(view: View) -> bool:
    return view.age is not None and view.age <= STALE_SECONDS


def is_silent(reading: Reading) -> bool:
    return reading.silence >= SILENT_SECONDS and reading.in_hand > 0


def is_stuck(reading: Reading) -> bool:
    """Sequences run, and neither reads nor writes a token; the only sign of a hung engine that a
    server gives that does not measure silence."""
    moves = reading.generated + reading.prompt_computed + reading.prompt_cached
    return reading.running > 0 and moves == 0


def _silence(reading: Reading) -> str:
    return f"Engine silent for {duration(reading.silence, 2)} with {_requests(reading)} in flight."


def _requests(reading: Reading) -> str:
    return f"{count(reading.in_hand)} request{'' if reading.in_hand == 1 else 's'}"
