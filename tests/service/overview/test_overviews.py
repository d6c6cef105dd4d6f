from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import msgspec
import pytest

from observability.admin_api import Condition, Quantiles, Window
from service.engine.link import EngineState, LinkPhase
from service.overview.overviews import Overviews
from service.overview.ring import Ring
from tests.service.overview.test_watch import READY, Server


def windows(seconds: float, objectives: Mapping[str, float]) -> Window:
    return Window(
        seconds=seconds,
        ttft=Quantiles(0.1, 0.2, 0.3, 9),
        attainment=dict.fromkeys(objectives, 0.5),
    )


def made(server: Server) -> Overviews:
    parts = server.watch.parts
    return Overviews(
        parts, Ring(), names=["m", "alias"], windows=windows, health=lambda: {"store": "ok"}
    )


def test_the_overview_survives_its_encoding() -> None:
    server = Server()
    overviews = made(server)
    overviews.look()
    for value in (overviews.now(), overviews.frame(since=0.0)):
        encoded = msgspec.json.encode(value)
        assert msgspec.json.decode(encoded, type=type(value)) == value


def test_the_overview_says_what_the_engine_and_the_requests_do() -> None:
    server = Server()
    overviews = made(server)
    server.engine_says(running=3, kv_blocks_active=10, kv_blocks_cached=15, kv_blocks_free=25)
    server.link.last_message_time = time.monotonic()
    overviews.look()
    now = overviews.now()
    assert (now.model, now.models, now.state) == ("m", ("m", "alias"), "ok")
    assert (now.running, now.max_running, now.max_waiting) == (3, READY.max_num_seqs, 1024)
    assert (now.kv_blocks_active, now.kv_blocks_cached, now.kv_blocks_free) == (10, 15, 25)
    assert now.parts == {"engine": "ok", "store": "ok"}
    assert now.engines == 1
    assert now.slo == {"ttft": 2.0, "itl": 0.1}
    assert now.minute.ttft.p95 == 0.2
    assert now.minute.attainment == {"ttft": 0.5, "itl": 0.5}
    assert (now.minute.seconds, now.five_minutes.seconds) == (60, 300)
    assert overviews.limited_by == now.verdict.condition.value == Condition.HEALTHY.value
    assert abs(now.verdict.since - time.time()) < 60


def test_the_overview_says_how_weights_are_stored_and_what_is_not_served() -> None:
    server = Server()
    overviews = made(server)
    assert (overviews.now().quantization, overviews.now().unserved_inputs) == ("", ())
    ready = msgspec.structs.replace(READY, quantization="fp8", unserved_inputs=("image",))
    server.link.state = EngineState(LinkPhase.READY, "ready", ready)
    assert overviews.now().quantization == "fp8"
    assert overviews.now().unserved_inputs == ("image",)


def test_an_engine_that_is_not_well_is_said_so() -> None:
    server = Server()
    overviews = made(server)
    server.link.state = EngineState(LinkPhase.LOADING, "loading: weights 3/10")
    overviews.look()
    now = overviews.now()
    assert now.verdict.condition is Condition.LOADING
    assert "weights 3/10" in now.verdict.sentence
    assert now.parts["engine"] == "loading: loading: weights 3/10"


def test_state_and_verdict_agree_before_the_next_look() -> None:
    server = Server()
    overviews = made(server)
    ready = server.link.state
    server.link.state = EngineState(LinkPhase.LOADING, "loading: weights 3/10")
    overviews.look()
    server.engine_says(running=1)
    server.link.state, server.link.last_message_time = ready, time.monotonic()
    now = overviews.now()
    assert now.state == "ok"
    assert now.verdict.sentence.startswith("Healthy: 1 of 4 slots taken")
    server.link.state = EngineState(LinkPhase.LOADING, "loading: weights 4/10")
    now = overviews.now()
    assert (now.state, now.verdict.condition) == ("loading", Condition.LOADING)


def test_ends_are_of_the_same_second_as_the_rates_beside_them() -> None:
    ended = {"stop": 1.0}
    overviews = Overviews(
        Server().watch.parts,
        Ring(),
        names=["m"],
        windows=lambda seconds, _: Window(seconds=seconds, ended=dict(ended)),
    )
    overviews.look()
    ended["stop"] = 2.0
    assert overviews.now().minute.ended == overviews.now().five_minutes.ended == {"stop": 1.0}
    overviews.look()
    assert overviews.now().minute.ended == {"stop": 2.0}


def test_a_changed_objective_counts_at_once() -> None:
    overviews = made(Server())
    overviews.slo["ttft"] = 0.5
    assert overviews.now().slo["ttft"] == 0.5


def test_a_frame_has_the_newest_second_and_new_marks_only() -> None:
    overviews = made(Server())
    overviews.mark("setting", "max_waiting_requests: 10")
    assert overviews.frame().marks == ()
    assert [mark.kind for mark in overviews.frame(since=0.0).marks] == ["setting"]
    assert overviews.frame(since=time.time() + 1).marks == ()
    assert overviews.frame().sample is None


async def test_it_looks_every_second_and_a_failed_look_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overviews = made(Server())
    looks: list[float] = []
    done = asyncio.Event()

    def look(now: float) -> None:
        looks.append(now)
        if len(looks) == 1:
            raise RuntimeError("a defect")
        done.set()

    monkeypatch.setattr(overviews._watch, "look", look)
    running = asyncio.create_task(overviews.run())
    await asyncio.wait_for(done.wait(), 10)
    running.cancel()
    assert int(looks[1]) > int(looks[0])
