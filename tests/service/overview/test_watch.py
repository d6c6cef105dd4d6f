"""A look at the server's parts, second by second."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.messages import EngineStats, Heartbeat, Ready
from engine.queueing import WaitingReason
from observability import catalogue
from observability.admin_api import Condition
from service.admission.drain import Drain
from service.constraint.trial import GrammarTrial
from service.engine.engines import Engines
from service.engine.link import EngineLink, EngineState, LinkPhase
from service.engine.pool import EnginePool
from service.engine.sequence import EngineSequence, SequenceState, Waker
from service.overview.history import LastHour
from service.overview.ring import Ring
from service.overview.watch import ServerWatch, WatchedParts
from service.settings import ServiceSettings
from service.supervision.page import Supervision, SupervisorPage
from service.telemetry.record import RequestRecord
from service.telemetry.requests import Telemetry
from tests.service.engine.test_link import submission
from tests.service.overview.test_queues import waits
from tests.service.request_records import started
from tests.service.telemetry.test_engine_totals import one_of

READY = Ready(
    model="m",
    architecture="a",
    dtype="float32",
    device="cpu",
    num_parameters=1,
    vocab_size=10,
    max_model_len=100,
    max_num_seqs=4,
    max_num_batched_tokens=64,
    block_size=16,
    num_kv_blocks=50,
    kv_cache_bytes=1,
    load_seconds=1.0,
    identity=7,
)


class Server:
    """The parts, with a link to an engine that is well, and a clock that the test sets."""

    def __init__(
        self,
        ring: Ring | None = None,
        *,
        telemetry: Telemetry | None = None,
        link: Engines | None = None,
        supervision: Supervision | None = None,
        **settings: Any,
    ) -> None:
        self.telemetry = telemetry or Telemetry(["m"], version="1", keys=["alice", "bob"])
        self.link = EngineLink(Path("unused"), on_step=lambda _: None, on_state=lambda _: None)
        self.link.state = EngineState(LinkPhase.READY, "ready", READY)
        self.live: dict[str, RequestRecord] = {}
        self.drain = Drain(30.0)
        self.history = LastHour(ring or Ring())
        parts = WatchedParts(
            ServiceSettings(**settings),
            link or self.link,
            self.drain,
            supervision or Supervision(SupervisorPage()),
            self.telemetry.metrics,
            self.telemetry.observed,
            self.live,
            GrammarTrial(Path("unused")),
        )
        self.now = float(int(time.monotonic()))
        self.watch = ServerWatch(parts, self.history, self.now)

    def engine_says(self, **stats: Any) -> None:
        self.link.stats = EngineStats(**stats)
        self.telemetry.on_step(Heartbeat(self.link.stats))

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += 1.0
            self.link.last_message_time = time.monotonic()
            self.watch.look(self.now)

    def sequence(self, state: SequenceState, request_id: str, **fields: Any) -> None:
        number = len(self.link.open_sequences) + 1
        [message] = submission([1], request_id=request_id).messages(itertools.count(number))
        one = EngineSequence(number, 40, 0.0, Waker(), message, "o")
        self.link.open_sequences.add(one)
        for name, value in {"state": state, **fields}.items():
            setattr(one, name, value)

    def limited(self) -> dict[str, float]:
        """The seconds of ``quire_limited_seconds_total`` by condition, those that are not 0."""
        return {
            sample.labels["by"]: sample.value
            for sample in self.telemetry.metrics.samples()
            if sample.name == catalogue.LIMITED_SECONDS.name and sample.value
        }


def test_the_time_is_counted_by_what_limits_the_server() -> None:
    server = Server()
    server.look(30)
    assert server.watch.condition is Condition.IDLE
    server.engine_says(running=4, waiting=3, waiting_reason=WaitingReason.SLOTS)
    for number in range(3):
        waiting_since = server.now - 5.0
        server.sequence(SequenceState.QUEUED, f"r{number}", waiting_since=waiting_since)
    server.look(10)
    assert server.watch.condition is Condition.SLOTS
    limited = server.limited()
    assert sum(limited.values()) == 40.0
    assert limited["slots"] == 7.0  # after it had held for three seconds
    assert server.now - server.watch.condition_since >= 7.0


def test_a_second_s_row_has_the_gauges_and_the_condition() -> None:
    server = Server()
    server.look()
    server.engine_says(running=2, kv_blocks_active=5, kv_blocks_cached=6, kv_blocks_free=39)
    server.look()
    newest = server.history.newest()
    assert newest is not None
    assert (newest["running"], newest["kv_active"], newest["kv_free"]) == (2, 5, 39)
    assert newest["condition"] == list(Condition).index(server.watch.condition)


def test_each_of_several_engines_is_looked_at(tmp_path: Path) -> None:
    supervised = SupervisorPage(engines=2)
    supervised.set_engine(1, runs=False, deaths=2)
    pool = EnginePool(lambda state, engine=0: None, 5.0, tmp_path)
    for number in range(2):
        link = EngineLink(
            Path(f"unused-{number}"),
            on_step=lambda _: None,
            on_state=pool.hears(number),
            number=number,
            siblings=pool,
        )
        link.state = EngineState(LinkPhase.READY, "ready", READY)
        pool.add(link)
    pool.state = pool.links[0].state
    server = Server(link=pool, supervision=Supervision(supervised))
    server.look()
    assert [engine.status for engine in server.watch.snapshot.engines] == ["ok", "ok"]
    pool.links[1].state = EngineState(LinkPhase.LOST, "the engine is gone", READY)
    server.look()
    assert server.watch.condition is Condition.ENGINES
    assert server.watch.verdict.sentence == (
        "Engine 1 is down (the engine is gone); it died 2 times in a row without progress, see the "
        "log. 1 of 2 engines is ready and gets all new requests."
    )
    assert server.limited()["engines"] == 1.0
    pool.links[1].state = EngineState(LinkPhase.READY, "ready", READY)
    server.look()
    assert server.watch.condition is not Condition.ENGINES


def test_what_waits_at_another_worker_is_in_the_history_and_the_condition(tmp_path: Path) -> None:
    lead, other = (one_of(tmp_path, number, leads=number == 0) for number in range(2))
    server = Server(telemetry=lead)
    waits(lead, None, standard=(1, 2.0))
    waits(other, 4.0, standard=(3, 5.0))
    server.engine_says(running=4, waiting=4, waiting_reason=WaitingReason.SLOTS)
    server.look(10)
    newest = server.history.newest()
    assert newest is not None
    names = ("waiting", "oldest_waiting", "predicted_wait", "longest_gap")
    assert [newest[name] for name in names] == [4, 5.0, 4.0, 0.5]
    assert server.watch.condition is Condition.SLOTS
    assert "4" in server.watch.verdict.sentence
    assert server.watch.snapshot.waiting == 0  # what this worker adds to the overview
    waits(lead, None)
    waits(other, None)
    server.look()
    newest = server.history.newest()
    assert newest is not None
    assert newest["waiting"] == 0
    assert newest["predicted_wait"] is None


def test_the_key_that_holds_most_of_the_cache_is_named_by_its_alias() -> None:
    server = Server(api_key=("alice=sk-alice-1234567", "bob=sk-bob-12345678"))
    for request_id, key in (("r1", "bob"), ("r2", "alice"), ("r3", "bob")):
        server.live[request_id] = started(server.telemetry, request_id=request_id)
        server.live[request_id].key = key
        server.sequence(SequenceState.RUNNING, request_id)
    server.look()
    snapshot = server.watch.snapshot
    assert snapshot.largest_holder == "bob"
    assert snapshot.largest_holder_share == pytest.approx(2 / 3)


def test_without_keys_nobody_is_named() -> None:
    server = Server()
    server.sequence(SequenceState.RUNNING, "r1")
    server.look()
    assert server.watch.snapshot.largest_holder is None


def test_a_client_that_does_not_read_is_counted_after_a_second() -> None:
    server = Server()
    record = server.live["r"] = started(server.telemetry)
    record.flush.waiting_since = server.now + 0.5
    server.look()
    assert (server.watch.snapshot.stalled, server.watch.snapshot.streams) == (0, 1)
    server.look()
    assert server.watch.snapshot.stalled == 1
    assert server.watch.snapshot.longest_stall == 1.5
    newest = server.history.newest()
    assert newest is not None
    assert newest["flush_waiting"] == 1
    record.flush.waited(server.now - 1.5, server.now)
    server.look()
    assert server.watch.snapshot.stalled == 0


def test_an_engine_restart_and_a_drain_are_marked() -> None:
    server = Server()
    server.telemetry.on_state(server.link.state)
    server.look()
    again = msgspec.structs.replace(READY, identity=8)
    server.link.state = EngineState(LinkPhase.READY, "ready", again, frozenset({1, 2}))
    server.telemetry.on_state(server.link.state)
    server.look(2)
    server.drain.begin()
    server.look(2)
    marks = [(mark.kind, mark.text) for mark in server.history.marks(0.0, float("inf"))]
    assert marks == [
        ("restart", "engine restarted"),
        ("handover", "2 sequences handed over"),
        ("drain", "drain began"),
    ]
    assert server.history.ring.engine_restarts == 1


def test_a_drain_is_in_the_verdict_before_the_next_look() -> None:
    server = Server()
    server.look()
    before = server.watch.condition
    server.drain.hold()
    server.watch.notice(server.now)
    assert server.watch.snapshot.draining
    assert server.watch.verdict.condition is Condition.DRAINING
    server.drain.release()
    server.watch.notice(server.now)
    assert not server.watch.snapshot.draining
    assert server.watch.verdict.condition is before


def test_the_worker_s_own_restart_is_marked(tmp_path: Path) -> None:
    for _ in range(2):
        server = Server(Ring(os.open(tmp_path / "ring", os.O_RDWR | os.O_CREAT)))
        server.look()
    assert [mark.text for mark in server.history.marks(0.0, float("inf"))] == [
        "API worker restarted"
    ]


@pytest.mark.parametrize(("setting", "seconds"), [(None, 60.0), (0, None), (7.0, 7.0)])
def test_the_silence_after_which_the_supervisor_replaces_the_engine(
    setting: float | None, seconds: float | None
) -> None:
    server = Server(engine_hang_timeout=setting)
    server.look()
    assert server.watch.snapshot.killed_after == seconds
