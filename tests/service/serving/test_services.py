"""What a worker is: its model's names and tasks, and whether it is well."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

from service.engine.link import EngineState, LinkPhase
from service.errors import LoadingError
from service.supervision.page import Supervision, SupervisorPage
from service.supervision.restarts import FAILING_DEATHS
from tests.service.preparation.prepared import engine
from tests.service.serving.by_hand import loaded, services
from tests.service.wire.chat.test_answer import Desk


def test_without_a_model_there_is_nothing_to_describe() -> None:
    of = services(Desk())
    with pytest.raises(LoadingError, match="waiting for the engine") as caught:
        _ = of.engine
    assert caught.value.headers()["retry-after"] == "5"
    assert of.tasks is None
    assert services(loaded()).engine == engine()


@pytest.mark.parametrize(
    ("fields", "tasks"),
    [
        ({"embedding_size": 0}, ("generate",)),
        ({"embedding_size": 8}, ("generate", "embed", "score")),
        ({"embedding_size": 8, "generates": False}, ("embed", "score")),
        ({"embedding_size": 0, "generates": False, "num_scores": 2}, ("score",)),
    ],
)
def test_a_model_that_embeds_also_scores(fields: dict[str, Any], tasks: tuple[str, ...]) -> None:
    assert services(loaded(engine(**fields))).tasks == tasks


@pytest.mark.parametrize(
    ("phase", "health"),
    [
        (LinkPhase.CONNECTING, "loading"),
        (LinkPhase.LOADING, "loading"),
        (LinkPhase.READY, "ok"),
        (LinkPhase.LOST, "lost"),
    ],
)
def test_health_follows_the_engine_and_a_drain_goes_before(phase: LinkPhase, health: str) -> None:
    desk = loaded()
    desk.state = EngineState(phase)
    of = services(desk)
    assert of.health() == health
    page = SupervisorPage()
    page.set_engine(0, deaths=FAILING_DEATHS)
    dying = dataclasses.replace(of, supervision=Supervision(page))
    assert dying.health() == ("ok" if phase is LinkPhase.READY else "failing")
    of.drain.begin()
    assert of.health() == dying.health() == "draining"


def test_an_engine_that_says_nothing_is_silent() -> None:
    desk = loaded()
    of = services(desk, engine_silence_timeout=10.0)
    desk.last_message_time = time.monotonic() - 5
    assert (of.health(), of.problem(of.engine_status())) == ("ok", None)
    desk.last_message_time = time.monotonic() - 11
    assert (of.health(), of.problem(of.engine_status())) == (
        "silent",
        "no message from the engine for 11 s",
    )
    assert of.engine_figures().status == "silent"
    assert of.engine_figures().engines == ["silent"]
    of.drain.begin()  # which is the server's, not the engine's
    assert (of.health(), of.engine_figures().status) == ("draining", "silent")
