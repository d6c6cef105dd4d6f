"""The badge and its sentences, out of what /health and the newest reading say."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.condition import STALE_SECONDS, Level, condition
from dashboard.poller import View
from dashboard.server import Health, State
from tests.dashboard.test_tiles import reading


def view(state: State = State.READY, detail: str = "", age: float = 0.5, **known: Any) -> View:
    newest = reading(**known)
    return View(Health(state, "m", detail), {}, (newest,), age, newest.time + age, 0.0, "")


def test_a_server_that_is_well_needs_no_sentence() -> None:
    now = condition(view())
    assert (now.word, now.level, now.sentences) == ("Ready", Level.CALM, ())


@pytest.mark.parametrize(
    "state", [State.LOADING, State.DRAINING, State.FAILED, State.UNREACHABLE, State.SILENT]
)
def test_what_health_says_is_shown(state: State) -> None:
    now = condition(view(state, "Because."))
    assert now.level is not Level.CALM
    assert now.sentences == ("Because.",)


def test_an_engine_that_is_silent_with_work_is_called_so_before_health_notices() -> None:
    now = condition(view(silence=12.3, in_progress=20.0, running=20.0))
    assert (now.word, now.level) == ("Silent", Level.CRITICAL)
    assert now.sentences == ("Engine silent for 12 s with 20 requests in flight.",)


def test_the_sentence_stays_when_health_has_noticed() -> None:
    now = condition(view(State.SILENT, "Too long.", silence=31.0, in_progress=1.0))
    assert now.sentences == ("Engine silent for 31 s with 1 request in flight.",)


@pytest.mark.parametrize(
    "known",
    [
        {"silence": 2.0, "in_progress": 20.0, "generated": 9.0},  # between two beats
        {"silence": 12.0, "in_progress": 0.0},  # no request waits for it
    ],
)
def test_silence_within_its_beat_or_without_work_is_no_alarm(known: dict[str, float]) -> None:
    assert condition(view(**known)).word == "Ready"


def test_an_older_server_whose_sequences_do_not_move_makes_no_progress() -> None:
    now = condition(view(running=20.0, in_progress=20.0, generated=0.0))
    assert (now.word, now.level) == ("No progress", Level.WARNING)
    assert now.sentences == ("20 requests in flight, but no token for 10 s.",)


def test_old_numbers_say_nothing_about_now() -> None:
    stale = view(age=STALE_SECONDS + 1, silence=12.0, in_progress=20.0)
    assert condition(stale).word == "Ready"
