"""The texts below and next to the tiles, from a reading."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashboard.poller import View
from dashboard.server import Health, State
from dashboard.views import metrics_only
from observability.outcomes import OUTCOMES, Outcome, OutcomeGroup
from tests.dashboard.test_reading import Server


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: outcome.name)
def test_every_end_that_is_no_answer_is_explained(outcome: Outcome) -> None:
    reading = replace(Server().read(), requests={outcome.name: 2.0})
    is_answer = outcome.group is OutcomeGroup.ANSWERED
    assert (outcome.sentence in metrics_only._notes(reading)) != is_answer


def test_percentiles_are_said_to_be_those_of_buckets() -> None:
    assert "interpolated within histogram buckets" in metrics_only._notes(Server().read())


def test_every_group_of_outcomes_has_its_line() -> None:
    (chart,) = (
        chart for chart in metrics_only.CHARTS if chart.title == "Requests ended per second"
    )
    assert {line.name for line in chart.lines} == {group.value for group in OutcomeGroup}


def test_each_outcome_is_in_one_line_of_the_chart() -> None:
    (chart,) = (
        chart for chart in metrics_only.CHARTS if chart.title == "Requests ended per second"
    )
    for outcome in OUTCOMES:
        reading = replace(Server().read(), requests={outcome.name: 2.0})
        values = {line.name: line.value(reading) for line in chart.lines}
        assert [name for name, value in values.items() if value] == [outcome.group.value]


def test_the_line_next_to_the_badge_says_what_serves() -> None:
    health = Health(State.READY, "m", unserved_inputs=("image", "video"))
    engine = {"model": "m", "device": "cpu", "quantization": "fp8", "max_model_len": "4096"}
    view = View(health, engine, (), age=None, now=0.0, wall=0.0, problem="")
    known = ["`m`", "cpu", "fp8", "context of 4,096 tokens"]
    assert metrics_only.facts(view) == [*known, "text only, no image or video"]
    assert metrics_only.facts(replace(view, health=Health(State.READY, "m"))) == known


def test_no_blocks_at_all_are_no_share() -> None:
    reading = replace(Server().read(), kv_blocks={"free": 0.0, "cached": 0.0, "active": 0.0})
    (chart,) = (chart for chart in metrics_only.CHARTS if chart.title == "KV cache")
    assert all(line.value(reading) != line.value(reading) for line in chart.lines)
