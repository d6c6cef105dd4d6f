"""Objectives are bucket bounds, and outcomes that spend the budget are the server's fault."""

from __future__ import annotations

import pytest

from observability.objectives import BAD_OUTCOMES, COUNTED_OUTCOMES, GOOD_OUTCOMES, Objectives
from observability.outcomes import OUTCOMES, OutcomeGroup, group_of


def test_each_outcome_is_good_bad_or_does_not_count() -> None:
    assert set(GOOD_OUTCOMES) | set(BAD_OUTCOMES) == set(COUNTED_OUTCOMES)
    assert not set(GOOD_OUTCOMES) & set(BAD_OUTCOMES)
    uncounted = {outcome.name for outcome in OUTCOMES} - set(COUNTED_OUTCOMES)
    assert uncounted == {
        *("client_gone", "client_slow", "cancelled", "refused:invalid", "refused:unauthorized"),
        *("refused:not_found", "refused:too_large", "refused:limit", "refused:draining"),
    }
    late = {"deadline", "refused:deadline", "refused:expired"}
    assert late | {"refused:overloaded"} < set(BAD_OUTCOMES)
    assert all(group_of(name) is not OutcomeGroup.ANSWERED for name in BAD_OUTCOMES)


def test_an_objective_between_two_bounds_is_refused_with_the_bounds() -> None:
    assert Objectives(ttft=1.5, itl=0.05).ttft == 1.5
    with pytest.raises(ValueError, match=r"ttft must be a bucket bound .* 1\.75 2 2\.5"):
        Objectives(ttft=2.2)
    with pytest.raises(ValueError, match="itl must be a bucket bound"):
        Objectives(itl=0.11)


@pytest.mark.parametrize("budget", [0, -1, 0.07, 1])
def test_a_budget_that_cannot_be_overspent_is_refused(budget: float) -> None:
    with pytest.raises(ValueError, match="itl_budget must be above 0"):
        Objectives(itl_budget=budget)
