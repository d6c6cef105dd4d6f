"""Log-probabilities are those of the model's own distribution."""

from __future__ import annotations

import pytest
import torch

from engine.messages import (
    token_mask,
)
from engine.sampling.logprobs import token_logprobs
from engine.step.step import SampledToken
from tests.engine.sampling.rows import params, sampler, sequence, some_logits


def test_logprobs_are_of_the_raw_distribution_not_the_filtered_one() -> None:
    logits = some_logits(rows=2)
    allowed = token_mask((33, 34))
    heavy = params(temperature=0.0, logit_bias={33: 100.0}, allowed_tokens=allowed, logprobs=4)
    rows = [sequence(1, heavy), sequence(2, params(seed=3, temperature=2.0, logprobs=0))]
    results = sampler().sample(logits.clone(), rows)
    raw = torch.log_softmax(logits.double(), dim=-1)
    for row, result in enumerate(results):
        assert isinstance(result, SampledToken)
        assert result.logprobs is not None
        own = raw[row, result.token_id]
        assert result.logprobs.logprob == pytest.approx(own.item(), abs=1e-5)
        assert result.logprobs.rank == 1 + int((raw[row] > own).sum())
    first = results[0]
    assert isinstance(first, SampledToken)
    assert first.token_id == 33
    assert first.logprobs is not None
    assert [top.token_id for top in first.logprobs.top] == raw[0].topk(4).indices.tolist()


def test_rows_without_logprobs_report_none() -> None:
    rows = [sequence(1, params(logprobs=1)), sequence(2, params())]
    results = sampler().sample(some_logits(rows=2), rows)
    assert [getattr(result, "logprobs", None) is None for result in results] == [False, True]


def test_no_more_alternatives_are_reported_than_there_are_tokens() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, 4.0, 3.0]])
    both = token_logprobs(logits, [2, 0], [20, 1])
    assert [[top.token_id for top in one.top] for one in both] == [[1, 2, 0], [0]]
    assert [one.rank for one in both] == [2, 1]
