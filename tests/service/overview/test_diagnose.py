"""The verdict on recorded snapshots of injected faults, and on numbers at the thresholds.

``snapshots.json`` is what a running server saw (``tests/e2e/test_verdicts.py``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from observability.admin_api import Condition
from observability.outcomes import CONDITIONS
from service.overview.diagnose import (
    THRESHOLDS,
    condition_of,
    describe,
    diagnose,
    duration,
)
from service.overview.snapshot import OneEngine, Snapshot

RECORDED = json.loads(Path(__file__).with_name("snapshots.json").read_text())
BUSY = Snapshot(engine="ok", running=32, max_running=64, sequences=32, in_flight=32)


WELL = OneEngine(status="ok", detail="ready")
LOADING = OneEngine(status="loading", detail="loading: weights 3/7")


def busy(**changes: Any) -> Snapshot:
    return msgspec.structs.replace(BUSY, **changes)


@pytest.mark.parametrize("fault", RECORDED)
def test_a_recorded_fault_is_named(fault: str) -> None:
    snapshot = msgspec.convert(RECORDED[fault], Snapshot)
    verdict = diagnose(snapshot)
    assert verdict.condition.value == fault
    assert len(verdict.figures) == 3


def test_every_fault_but_the_engine_s_end_is_recorded() -> None:
    assert set(RECORDED) == set(Condition) - {Condition.DOWN}


def test_the_conditions_are_those_of_the_metric_in_the_same_order() -> None:
    assert tuple(CONDITIONS) == tuple(Condition)


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ({}, Condition.HEALTHY),
        ({"engine": "failing", "problem": "it died 3 times", "draining": True}, Condition.DOWN),
        ({"engine": "lost"}, Condition.DOWN),
        ({"engine": "lost", "expects_engine": True}, Condition.LOADING),
        ({"engine": "loading"}, Condition.LOADING),
        ({"engine": "silent", "draining": True}, Condition.SILENT),
        ({"draining": True, "recomputed_share": 0.5}, Condition.DRAINING),
        ({"engines": (WELL, WELL)}, Condition.HEALTHY),
        ({"engines": (WELL, LOADING), "recomputed_share": 0.5}, Condition.ENGINES),
        ({"engines": (WELL, LOADING), "draining": True}, Condition.DRAINING),
        ({"engine": "loading", "engines": (LOADING, LOADING)}, Condition.LOADING),
        ({"connections": 96, "connection_limit": 96}, Condition.CONNECTIONS),
        ({"connections": 95, "connection_limit": 96}, Condition.HEALTHY),
        ({"recomputed_share": THRESHOLDS.recomputed_share}, Condition.KV),
        ({"waiting": 1, "waiting_reason": "kv_blocks", "oldest_waiting": 0.5}, Condition.KV),
        ({"waiting": 1, "waiting_reason": "kv_blocks", "oldest_waiting": 0.4}, Condition.HEALTHY),
        ({"waiting": 9, "waiting_reason": "slots", "oldest_waiting": 4.0}, Condition.SLOTS),
        ({"waiting": 9, "waiting_reason": "budget", "oldest_waiting": 4.0}, Condition.PREFILL),
        ({"waiting": 0, "waiting_reason": "slots", "oldest_waiting": 4.0}, Condition.HEALTHY),
        ({"longest_prefill": 1.0}, Condition.PREFILL),
        (
            {"waiting": 9, "waiting_reason": "constraint", "oldest_waiting": 4.0},
            Condition.CONSTRAINT,
        ),
        ({"grammars_waiting": 1, "oldest_grammar": 0.5}, Condition.CONSTRAINT),
        ({"loop_lag": 0.1}, Condition.FRONTEND),
        ({"loop_lag": 0.09}, Condition.HEALTHY),
        ({"streams": 10, "stalled": 2}, Condition.CLIENTS),
        ({"streams": 11, "stalled": 2}, Condition.HEALTHY),
        ({"sequences": 0, "in_flight": 0, "since_request": 9.0}, Condition.HEALTHY),
        ({"sequences": 0, "in_flight": 0, "since_request": 10.0}, Condition.IDLE),
        ({"sequences": 0, "in_flight": 1, "since_request": 10.0}, Condition.HEALTHY),
    ],
)
def test_the_most_urgent_condition_that_holds_is_named(
    changes: dict[str, Any], condition: Condition
) -> None:
    assert condition_of(busy(**changes)) is condition


@pytest.mark.parametrize(
    ("connections", "receiving", "sentence"),
    [
        (96, 90, "96 of 96 are in use, and new ones wait; 90 requests are still arriving."),
        (96, 1, "96 of 96 are in use, and new ones wait; 1 request is still arriving."),
        (12, 0, "12 of 96 are in use; 0 requests are still arriving."),  # shown a little longer
    ],
)
def test_used_up_connections_say_how_many_requests_are_arriving(
    connections: int, receiving: int, sentence: str
) -> None:
    snapshot = busy(connections=connections, connection_limit=96, receiving=receiving)
    assert describe(Condition.CONNECTIONS, snapshot).sentence == f"Connections: {sentence}"


def test_a_full_cache_says_who_holds_it() -> None:
    snapshot = busy(
        running=42,
        kv_active=703,
        kv_blocks=750,
        waiting=41,
        waiting_reason="kv_blocks",
        oldest_waiting=3.9,
        recomputed_share=0.11,
        largest_holder="bob",
        largest_holder_share=0.61,
    )
    assert diagnose(snapshot).sentence == (
        "KV cache: 703 of 750 blocks are held by 42 sequences, 41 waiting (oldest 3.9 s), 11 % of "
        "the work is recomputed after preemption. Largest holder: bob, 61 %."
    )


def test_a_silent_engine_says_when_it_will_be_restarted() -> None:
    snapshot = busy(engine="silent", silence=12.0, sequences=20, killed_after=60.0)
    assert diagnose(snapshot).sentence == (
        "Engine silent for 12 s with 20 sequences in flight; it will be restarted in 48 s."
    )
    alone = msgspec.structs.replace(snapshot, killed_after=None)
    assert diagnose(alone).sentence == "Engine silent for 12 s with 20 sequences in flight."


@pytest.mark.parametrize(
    ("engines", "killed_after", "sentence"),
    [
        (
            (WELL, OneEngine(status="silent", detail="ready", silence=12.0, sequences=7)),
            60.0,
            "Engine 1 has been silent for 12 s with 7 sequences in flight; it will be restarted in "
            "48 s. 1 of 2 engines is ready and gets all new requests.",
        ),
        (
            (OneEngine(status="silent", detail="ready", silence=12.0), WELL),
            None,
            "Engine 0 has been silent for 12 s. 1 of 2 engines is ready and gets all new requests.",
        ),
        (
            (WELL, LOADING, WELL),
            60.0,
            "Engine 1 is not ready yet (loading: weights 3/7). 2 of 3 engines are ready and get "
            "all new requests.",
        ),
        (
            (
                *(WELL, LOADING),
                OneEngine(status="lost", detail="the engine is gone", sequences=1, deaths=3),
            ),
            60.0,
            "Engine 2 is down (the engine is gone) with 1 sequence in flight; it died 3 times in a "
            "row without progress, see the log. 1 of 3 engines is ready and gets all new requests.",
        ),
    ],
)
def test_one_engine_of_several_is_named_with_what_it_holds(
    engines: tuple[OneEngine, ...], killed_after: float | None, sentence: str
) -> None:
    verdict = diagnose(busy(engines=engines, killed_after=killed_after))
    assert verdict.condition is Condition.ENGINES
    assert verdict.sentence == sentence
    ready, silence, _ = verdict.figures
    assert ready.value == engines.count(WELL)
    assert silence.value == max(engine.silence for engine in engines)


def test_a_shutdown_says_when_it_cuts_requests_off_and_an_operator_s_drain_does_not() -> None:
    ending = busy(draining=True, in_flight=3, drain_seconds_left=12.0)
    assert diagnose(ending).sentence == (
        "Draining: 3 requests in flight, cut off in 12 s at the latest."
    )
    held = msgspec.structs.replace(ending, drain_seconds_left=0.0)
    assert diagnose(held).sentence == ("Draining: 3 requests in flight; no new ones are accepted.")


def test_a_healthy_server_says_how_much_room_it_has() -> None:
    assert diagnose(busy(oldest_waiting=0.04)).sentence == (
        "Healthy: 32 of 64 slots taken, oldest wait 40 ms."
    )


def test_a_healthy_server_that_refuses_most_requests_says_why() -> None:
    refusing = busy(refused=1300.0, refused_share=0.98, refused_outcome="refused:not_found")
    assert diagnose(refusing).sentence == (
        "Healthy: 32 of 64 slots taken, oldest wait 0 ms. Refusing 1,300 requests per second (98 % "
        "of all), most as 'refused:not_found'."
    )
    few = msgspec.structs.replace(refusing, refused_share=0.49)
    assert "Refusing" not in diagnose(few).sentence


@pytest.mark.parametrize("condition", Condition)
@pytest.mark.parametrize("snapshot", [Snapshot(engine="ok"), *RECORDED.values()])
def test_every_condition_can_be_described_at_any_moment(
    condition: Condition, snapshot: Snapshot | dict[str, Any]
) -> None:
    """What is shown may be over already (``service.overview.steadiness``)."""
    verdict = describe(condition, msgspec.convert(snapshot, Snapshot))
    assert verdict.sentence.endswith(".")
    assert "nan" not in verdict.sentence
    assert "None" not in verdict.sentence
    assert len(verdict.figures) == 3


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "40 ms"), (0.9999, "1.0 s"), (3.94, "3.9 s"), (9.96, "10 s"), (250.0, "4 min 10 s")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text
