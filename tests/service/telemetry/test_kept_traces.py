"""Which requests are traced whatever the sampler says."""

from __future__ import annotations

from typing import Any

import pytest

from service.telemetry.kept_traces import KeptBecause, TraceKeeping
from service.telemetry.line_budget import LINES_AT_ONCE, LineBudget
from service.telemetry.record import RequestRecord
from service.telemetry.requests import Telemetry
from tests.service.request_records import answered, sequence


def record(**changes: Any) -> RequestRecord:
    return answered(Telemetry(["m"], version="1"), **changes)


def reason(keeping: TraceKeeping | None = None, **changes: Any) -> KeptBecause | None:
    return (keeping or TraceKeeping()).reason(record(**changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"outcome": "client_gone"}, None),
        ({"outcome": "error:engine", "status": 200}, KeptBecause.ERROR),
        ({"outcome": "stop", "status": 503}, KeptBecause.ERROR),
        ({"outcome": "refused:overloaded", "status": 429}, KeptBecause.REFUSED),
        ({"sequences": [sequence(), sequence(preemptions=1)]}, KeptBecause.PREEMPTED),
        ({"sequences": [sequence(handovers=1)]}, KeptBecause.HANDED_OVER),
    ],
)
def test_what_went_wrong_is_kept(changes: dict[str, Any], expected: KeptBecause | None) -> None:
    assert reason(**changes) is expected


def test_slow_is_above_one_of_the_objectives() -> None:
    # first token after 41 ms, then one each 5 ms
    assert reason(TraceKeeping({"ttft": 0.0411, "itl": 0.0051})) is None
    assert reason(TraceKeeping({"ttft": 0.0409, "itl": 0.0051})) is KeptBecause.SLOW
    assert reason(TraceKeeping({"ttft": 0.0411, "itl": 0.0049})) is KeptBecause.SLOW
    single = sequence(output_tokens=1, last_token_time=1000.040)
    assert reason(TraceKeeping({"ttft": 2.0, "itl": 0.001}), sequences=[single]) is None
    never = sequence(first_token_time=None, last_token_time=None)
    assert reason(sequences=[never], first_token_time=None) is None


def test_a_flood_of_refusals_is_not_kept_but_errors_are() -> None:
    moment = 0.0
    keeping = TraceKeeping(refusals=LineBudget(clock=lambda: moment))
    refused = [reason(keeping, outcome="refused:overloaded") for _ in range(3 * LINES_AT_ONCE)]
    assert refused.count(KeptBecause.REFUSED) == LINES_AT_ONCE
    assert reason(keeping, outcome="error:engine") is KeptBecause.ERROR
    moment = 1.0
    assert reason(keeping, outcome="refused:overloaded") is KeptBecause.REFUSED
