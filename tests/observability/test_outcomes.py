"""The words that all parts share are the engine's own, and each is one kind of end."""

from __future__ import annotations

import pytest

from engine.messages import PrefixMissReason
from engine.queueing import RefusalReason, ServiceClass, WaitingReason
from observability.outcomes import (
    OUTCOMES,
    PREFIX_MISS_REASONS,
    QUEUE_REFUSALS,
    ROUTES,
    SERVICE_CLASSES,
    WAITING_REASONS,
    Outcome,
    OutcomeGroup,
    group_of,
    is_outcome,
)


def test_the_engine_and_the_table_have_the_same_reasons() -> None:
    assert list(WAITING_REASONS) == list(map(str, WaitingReason))
    assert list(PREFIX_MISS_REASONS) == list(map(str, PrefixMissReason))
    assert list(QUEUE_REFUSALS) == list(map(str, RefusalReason))
    assert list(SERVICE_CLASSES) == list(map(str, ServiceClass))


def test_an_unknown_outcome_is_never_taken_for_an_answer() -> None:
    assert {group_of(each.name) for each in OUTCOMES} == set(OutcomeGroup)
    assert group_of("refused:by-a-newer-server") is not OutcomeGroup.ANSWERED


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: outcome.name)
def test_a_refusal_or_an_error_is_named_as_one(outcome: Outcome) -> None:
    assert is_outcome(outcome.name)
    assert group_of(outcome.name) is outcome.group
    assert outcome.name.startswith("refused:") == (outcome.group is OutcomeGroup.REFUSED)
    assert outcome.name.startswith("error:") == (outcome.group is OutcomeGroup.FAILED)
    assert outcome.sentence.endswith(".")


def test_an_undeclared_name_is_not_an_outcome() -> None:
    for name in ("", "STOP", "refused", "error:internal ", *OutcomeGroup):
        assert not is_outcome(name)


def test_routes_are_words_that_a_label_can_be() -> None:
    assert all(route.isidentifier() and route.islower() for route in ROUTES)
