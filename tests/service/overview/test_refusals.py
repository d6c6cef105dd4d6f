from __future__ import annotations

from observability.outcomes import OUTCOMES
from service.overview.refusals import Refusals, Refused

NONE = {outcome.name: 0.0 for outcome in OUTCOMES}


def test_the_first_look_knows_nothing() -> None:
    assert Refusals(5).look(1.0, {**NONE, "refused:invalid": 9.0}) == Refused()


def test_rate_share_and_the_most_common_outcome_are_of_the_last_seconds() -> None:
    refusals = Refusals(2)
    refusals.look(1.0, NONE)
    ended = {**NONE, "refused:not_found": 30.0, "refused:invalid": 10.0, "stop": 10.0}
    assert refusals.look(3.0, ended) == Refused(20.0, 0.8, "refused:not_found")
    assert refusals.look(4.0, ended).rate == 40.0 / 3
    assert refusals.look(5.0, ended) == Refused()


def test_answers_and_failures_are_not_refusals() -> None:
    refusals = Refusals(5)
    refusals.look(1.0, NONE)
    assert refusals.look(2.0, {**NONE, "stop": 5.0, "error:internal": 5.0}) == Refused()
