"""A step's plan, and what a model says of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.messages import SamplingParams
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence, StepPlan
from tests.engine.checking_runner import CheckingRunner


def sequence() -> Sequence:
    return Sequence(1, "", [1, 2, 3, 4, 5], 5, SamplingParams(max_tokens=1))


def test_a_plan_counts_the_tokens_of_all_its_items() -> None:
    items = (
        ScheduledSequence(sequence(), 0, 3, completes=False),
        ScheduledSequence(sequence(), 4, 1, completes=True),
    )
    assert [item.end for item in items] == [3, 5]
    assert StepPlan(items).num_tokens == 4
    assert StepPlan(()).num_tokens == 0


def test_an_item_is_out_of_date_once_its_sequence_lost_its_blocks() -> None:
    planned = sequence()
    planned.num_preemptions = 2
    item = ScheduledSequence(planned, 0, 5, completes=True, num_preemptions=2)
    assert item.is_current
    planned.num_preemptions += 1
    assert not item.is_current


@pytest.mark.parametrize(
    ("embedding_size", "num_scores", "vector_size"), [(0, 0, 0), (48, 0, 48), (48, 3, 3)]
)
def test_a_classifier_answers_with_its_scores_and_others_with_an_embedding_if_any(
    embedding_size: int, num_scores: int, vector_size: int
) -> None:
    info = replace(CheckingRunner().info, embedding_size=embedding_size, num_scores=num_scores)
    assert info.vector_size == vector_size
