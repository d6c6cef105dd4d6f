"""What the engine's messages do to the metrics."""

from __future__ import annotations

import time

import msgspec
import pytest

from engine.messages import EngineCounters, FinishReason, Heartbeat, StepPhase
from engine.queueing import Refusal, RefusalReason, ServiceClass, WaitingReason
from observability import catalogue, queue_metrics
from observability.metric_kinds import Metric
from service.engine.link import EngineState, LinkPhase
from service.engine.silence import EngineFigures, EngineStatus
from service.engine.waits import ClassWait
from service.telemetry.requests import Telemetry
from tests.service.request_records import sequence
from tests.service.telemetry.watched import READY, stats, step, value

NEXT = msgspec.structs.replace(READY, identity=READY.identity + 1)


def test_every_counter_of_the_engine_reaches_its_series(telemetry: Telemetry) -> None:
    counted = {name: n for n, name in enumerate(EngineCounters.__struct_fields__, start=1)}
    telemetry.on_step(Heartbeat(stats(**counted)))
    telemetry.exposition(None)
    found = {}
    for metric in catalogue.METRICS:
        closed = [label for label in metric.labels if label is not catalogue.MODEL]
        values = [total.value for total in metric.totals]
        if metric.totals:
            assert values == list(closed[0].values or ()) if closed else [None]
        for total in metric.totals:
            labels = {label.name: str(total.value) for label in closed}
            found[total.field] = value(telemetry, metric, **labels)
    del counted["steps"]  # which have a histogram; this only shows a restart
    assert found == counted


def test_gauges_show_the_state_after_the_last_step(telemetry: Telemetry) -> None:
    telemetry.on_step(
        step(
            1.0,
            [],
            stats=stats(
                running=3,
                waiting=2,
                waiting_reason=WaitingReason.KV_BLOCKS,
                kv_blocks_free=10,
                kv_blocks_cached=20,
                kv_blocks_active=70,
            ),
        )
    )
    assert value(telemetry, catalogue.SEQUENCES_RUNNING) == 3
    assert value(telemetry, catalogue.SEQUENCES_WAITING, reason="kv_blocks") == 2
    assert value(telemetry, catalogue.SEQUENCES_WAITING, reason="slots") == 0
    assert value(telemetry, catalogue.KV_BLOCKS, state="cached") == 20
    assert value(telemetry, catalogue.KV_USAGE_RATIO) == pytest.approx(0.7)
    telemetry.on_step(Heartbeat(stats()))
    assert value(telemetry, catalogue.SEQUENCES_WAITING, reason="kv_blocks") == 0


def test_counters_follow_the_engines_totals(telemetry: Telemetry) -> None:
    telemetry.on_step(step(1.0, [], stats=stats(tokens_generated=5, steps=1)))
    telemetry.on_step(step(2.0, [], stats=stats(tokens_generated=8, preemptions=1, steps=2)))
    telemetry.on_step(Heartbeat(stats(tokens_generated=8, preemptions=1, steps=2)))
    assert value(telemetry, catalogue.GENERATED_TOKENS) == 8
    assert value(telemetry, catalogue.PREEMPTIONS) == 1


def test_counters_never_fall_and_lose_nothing_when_the_engine_restarts(
    telemetry: Telemetry,
) -> None:
    telemetry.on_state(EngineState(LinkPhase.READY, "ready", READY))
    telemetry.on_step(step(1.0, [], stats=stats(tokens_generated=100, steps=40)))
    telemetry.on_state(EngineState(LinkPhase.LOST, "gone"))
    telemetry.on_state(EngineState(LinkPhase.READY, "ready", NEXT))
    telemetry.on_step(step(2.0, [], stats=stats(tokens_generated=7, steps=3)))
    assert value(telemetry, catalogue.GENERATED_TOKENS) == 107


def test_the_gap_that_a_dead_engine_leaves_in_a_stream_is_counted(telemetry: Telemetry) -> None:
    telemetry.on_step(step(1.0, [1, 2]))
    telemetry.on_state(EngineState(LinkPhase.LOST, "gone", kept=frozenset({1})))
    telemetry.on_state(EngineState(LinkPhase.READY, "ready", READY, frozenset({1})))
    telemetry.on_step(step(8.5, [1, 2]))
    assert value(telemetry, catalogue.INTER_TOKEN_LATENCY, "_count") == 1
    assert value(telemetry, catalogue.INTER_TOKEN_LATENCY, "_sum") == pytest.approx(7.5)


def test_readiness_and_shape_of_the_engine_are_shown_and_its_loss_too(
    telemetry: Telemetry,
) -> None:
    telemetry.on_state(EngineState(LinkPhase.LOADING, "loading"))
    telemetry.on_state(EngineState(LinkPhase.READY, "ready", READY))
    assert value(telemetry, catalogue.ENGINE_LOAD_SECONDS) == 1.5
    info = {"dtype": "float32", "device": "cpu", "block_size": "16", "num_kv_blocks": "100"}
    limits = {"max_model_len": "512", "max_num_seqs": "64", "quantization": "none"}
    assert value(telemetry, catalogue.ENGINE_INFO, **info, **limits) == 1
    telemetry.on_step(step(1.0, [1], stats=stats(running=1, kv_blocks_active=4)))
    telemetry.on_state(EngineState(LinkPhase.LOST, "gone"))
    for metric in (catalogue.SEQUENCES_RUNNING, catalogue.KV_USAGE_RATIO):
        assert value(telemetry, metric) == 0


@pytest.mark.parametrize("status", EngineStatus)
def test_the_engine_is_ready_while_its_status_is_ok(
    telemetry: Telemetry, status: EngineStatus
) -> None:
    telemetry.on_state(EngineState(LinkPhase.READY, "ready", READY))
    telemetry.read_engine(lambda: EngineFigures(status, 0.5, {}, 0.0, None))
    assert value(telemetry, catalogue.ENGINE_READY) == (status is EngineStatus.OK)


def _waits(oldest: float) -> dict[ServiceClass, ClassWait]:
    return {
        ServiceClass.INTERACTIVE: ClassWait(1, oldest / 2),
        ServiceClass.BATCH: ClassWait(3, oldest),
    }


def test_waits_are_shown_by_class_and_end_with_them(telemetry: Telemetry) -> None:
    pages = [EngineFigures(EngineStatus.OK, 0.5, _waits(8.0), 0.25, 3.0)]
    telemetry.read_engine(lambda: pages[-1])
    waiting, oldest = queue_metrics.CLASS_WAITING, queue_metrics.CLASS_OLDEST_WAITING_SECONDS

    def shown(metric: Metric) -> list[float]:
        return [value(telemetry, metric, **{"class": kind.value}) for kind in ServiceClass]

    assert (shown(waiting), shown(oldest)) == ([1, 0, 3], [4.0, 0.0, 8.0])
    assert value(telemetry, catalogue.OLDEST_WAITING_SECONDS) == 8.0
    pages.append(EngineFigures(EngineStatus.OK, 0.5, {}, 0.0, 3.0))
    assert (shown(waiting), shown(oldest)) == ([0, 0, 0], [0.0, 0.0, 0.0])


@pytest.mark.parametrize("reason", RefusalReason)
def test_sequences_without_a_place_are_counted_by_reason(
    telemetry: Telemetry, reason: RefusalReason
) -> None:
    refused = sequence(reason=FinishReason.ERROR, refusal=Refusal(reason))
    telemetry.on_step(step(1.0, [], phase=None, finished=[refused, sequence(handle=2)]))
    counted = {
        each: value(telemetry, queue_metrics.REFUSED_SEQUENCES, reason=each.value)
        for each in RefusalReason
    }
    assert counted == {each: float(each is reason) for each in RefusalReason}


def test_engines_are_counted_by_their_state(telemetry: Telemetry) -> None:
    each = [EngineStatus.OK, EngineStatus.LOST, EngineStatus.OK, EngineStatus.SILENT]
    telemetry.read_engine(lambda: EngineFigures(EngineStatus.OK, 0.5, {}, 0.0, None, each))
    found = {one: value(telemetry, catalogue.ENGINES, state=one.value) for one in EngineStatus}
    assert found == {one: each.count(one) for one in EngineStatus}


def test_figures_that_move_without_a_message_are_read_for_each_page(telemetry: Telemetry) -> None:
    gauges = {
        "silence": catalogue.ENGINE_SILENCE_SECONDS,
        "oldest": catalogue.OLDEST_WAITING_SECONDS,
        "gap": catalogue.LONGEST_GAP_SECONDS,
        "predicted": catalogue.PREDICTED_WAIT_SECONDS,
    }
    pages = iter(
        [
            EngineFigures(EngineStatus.OK, 0.5, _waits(1.5), 0.25, 3.0),
            EngineFigures(EngineStatus.LOST, 8.5, _waits(9.5), 8.25, None),
            EngineFigures(EngineStatus.LOADING, None, {}, 0.0, 2.0),
        ]
    )
    telemetry.read_engine(lambda: next(pages))
    shown = []
    for _ in range(3):
        telemetry.exposition(None)
        sample = telemetry.metrics.sample
        shown.append([sample(gauge, {"model": "m"}) for gauge in gauges.values()])
    assert shown == [[0.5, 1.5, 0.25, 3.0], [8.5, 9.5, 8.25, None], [None, 0.0, 0.0, 2.0]]


def test_the_last_messages_time_is_the_silence_ago(telemetry: Telemetry) -> None:
    assert value(telemetry, catalogue.ENGINE_LAST_MESSAGE) == 0
    telemetry.read_engine(lambda: EngineFigures(EngineStatus.OK, 100.0, {}, 0.0, None))
    assert abs(time.time() - 100.0 - value(telemetry, catalogue.ENGINE_LAST_MESSAGE)) < 5


def test_steps_are_observed_by_phase_and_size(telemetry: Telemetry) -> None:
    telemetry.on_step(step(1.0, [1, 2]))
    telemetry.on_step(step(1.1, [1], phase=StepPhase.PREFILL, step_tokens=300, step_seconds=0.1))
    telemetry.on_step(step(1.2, [], phase=None))  # an abort outside a step is not a step
    assert value(telemetry, catalogue.STEP_SECONDS, "_count", phase="decode") == 1
    assert value(telemetry, catalogue.STEP_SECONDS, "_sum", phase="prefill") == pytest.approx(0.1)
    assert value(telemetry, catalogue.STEP_TOKENS, "_sum") == 302
    assert value(telemetry, catalogue.STEP_SEQUENCES, "_count") == 2


def test_every_gap_between_tokens_of_a_sequence_is_an_observation(telemetry: Telemetry) -> None:
    telemetry.on_step(step(1.000, [1, 2]))
    telemetry.on_step(step(1.004, [1, 2]))
    telemetry.on_step(step(1.014, [2], finished=[sequence(handle=2)]))
    telemetry.on_step(step(1.020, [2]))  # a new sequence that has the same handle: no gap
    assert value(telemetry, catalogue.INTER_TOKEN_LATENCY, "_count") == 3
    assert value(telemetry, catalogue.INTER_TOKEN_LATENCY, "_sum") == pytest.approx(0.018)
    assert value(telemetry, catalogue.INTER_TOKEN_LATENCY, "_bucket", le="0.005") == 2


def test_a_lost_engine_leaves_no_gap_behind(telemetry: Telemetry) -> None:
    telemetry.on_step(step(1.0, [1]))
    telemetry.on_state(EngineState(LinkPhase.LOST, "gone"))
    telemetry.on_step(step(90.0, [1]))
    assert value(telemetry, catalogue.INTER_TOKEN_LATENCY, "_count") == 0
