"""NaN for one sequence of a batch."""

from __future__ import annotations

import pytest
import torch

from engine.injection.logits import poison_logits
from engine.messages import SamplingParams
from engine.sampling.sampler import Sampler, SamplingError
from engine.simulation import runner as simulated
from engine.step.sequence import Sequence
from engine.step.step import SampledToken, StepPlan


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> list[Sequence]:
    """The sequence to hit, if any; everything is as before afterwards."""
    monkeypatch.setattr(Sampler, "choose", Sampler.choose)
    monkeypatch.setitem(vars(simulated), "is_certain", vars(simulated)["is_certain"])
    return []


def test_one_row_has_no_token_and_the_others_have_theirs(target: list[Sequence]) -> None:
    before = poison_logits(lambda plan: target[0] if target else None)
    sampler = Sampler(vocab_size=8, eos_token_ids=frozenset(), device=torch.device("cpu"))
    rows = [
        Sequence(uid, "r", [1], 1, SamplingParams(max_tokens=4, temperature=0)) for uid in (1, 2, 3)
    ]
    before(StepPlan(()))
    assert sampler.sample(torch.eye(3, 8), rows) == [SampledToken(row) for row in range(3)]
    target.append(rows[1])
    before(StepPlan(()))
    first, failed, third = sampler.sample(torch.eye(3, 8), rows)
    assert (first, third) == (SampledToken(0), SampledToken(2))
    assert isinstance(failed, SamplingError)
    assert "nan" in str(failed).lower()
