from __future__ import annotations

from engine.messages import EngineStats, Heartbeat, StepOutputs, StepPhase
from observability import catalogue
from service.overview.ring import RATES
from service.overview.totals import Totals
from service.telemetry.requests import Telemetry
from tests.service.request_records import answered


def test_the_totals_are_the_counters_of_the_metrics_page() -> None:
    telemetry = Telemetry(["m", "alias"], version="1")
    totals = Totals(telemetry.metrics)
    for outcome, model in (("stop", "m"), ("length", "alias"), ("refused:overloaded", "")):
        telemetry.request_finished(answered(telemetry, outcome=outcome, model=model))
    telemetry.on_step(
        StepOutputs(
            time=1.0,
            phase=StepPhase.DECODE,
            step_seconds=0.1,
            step_sequences=3,
            stats=EngineStats(tokens_generated=7, prompt_tokens_computed=20, tokens_recomputed=2),
        )
    )
    ended = totals.ended()
    assert {name: count for name, count in ended.items() if count} == {
        "stop": 1,
        "length": 1,
        "refused:overloaded": 1,
    }
    found = dict(zip(RATES, totals.read(ended), strict=True))
    telemetry.exposition(None)  # publishes the engine's counters
    sums: dict[str, float] = {}
    for sample in telemetry.metrics.samples():
        sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        phase = sample.labels.get("phase")
        if phase and sample.name == f"{catalogue.PHASE_SECONDS.name}_sum":
            sums[f"phase_{phase}"] = sums.get(f"phase_{phase}", 0.0) + sample.value
    assert found["tokens_out"] == sums[catalogue.GENERATED_TOKENS.name] == 7
    assert found["tokens_recomputed"] == sums[catalogue.RECOMPUTED_TOKENS.name] == 2
    assert found["tokens_in_computed"] == 20
    assert found["received"] == sums[catalogue.REQUESTS_RECEIVED.name] == 3
    assert (found["ended_answered"], found["ended_refused"], found["overloaded"]) == (2, 1, 1)
    assert found["steps"] == sums[f"{catalogue.STEP_SECONDS.name}_count"] == 1
    assert totals.batches() == (1, 3)
    for name in RATES:
        if name.startswith("phase_"):
            assert found[name] == sums.get(name, 0.0), name
    assert found["phase_queue"] > 0


def test_the_engine_is_known_by_its_identity() -> None:
    telemetry = Telemetry(["m"], version="1")
    totals = Totals(telemetry.metrics)
    assert totals.engine_identities() == (0,)
    telemetry.on_step(Heartbeat(EngineStats()))
    assert totals.engine_identities() == (0,)
