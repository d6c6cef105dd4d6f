"""What the tiles say, out of a reading."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashboard.views import live
from observability.outcomes import OUTCOMES, WAITING_REASONS, Outcome, OutcomeGroup
from tests.dashboard.test_reading import Server


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: outcome.name)
def test_only_answers_are_called_answered(outcome: Outcome) -> None:
    reading = replace(Server().read(), requests={outcome.name: 2.0})
    said = live._ended(reading)
    assert (said == "all answered") == (outcome.group is OutcomeGroup.ANSWERED)
    assert outcome.group.value in said
    assert outcome.sentence in str(live._ends(reading))


@pytest.mark.parametrize("reason", WAITING_REASONS)
def test_every_reason_for_waiting_is_said_in_words(reason: str) -> None:
    waiting = {**dict.fromkeys(WAITING_REASONS, 0.0), reason: 3.0}
    said = live._why_waiting(replace(Server().read(), waiting=waiting))
    assert said == WAITING_REASONS[reason]


def test_every_group_of_outcomes_has_its_line() -> None:
    (chart,) = (chart for chart in live.CHARTS if chart.title == "Requests per second")
    assert {line.name for line in chart.lines} == {group.value for group in OutcomeGroup}
