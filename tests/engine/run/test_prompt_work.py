"""What prompt logprobs cost, by a model's sizes."""

from __future__ import annotations

import pytest

from engine.run.prompt_work import prompt_logprob_work


@pytest.mark.parametrize(
    ("layers", "head", "work"),
    [
        pytest.param(440_000_000, (151_936, 1024), 1.42, id="Qwen3 0.6B"),
        pytest.param(100_000_000, (262_144, 640), 3.2, id="Gemma 3 270M"),
        pytest.param(3_540_000, (1280, 192), 1.14, id="pocket"),
        pytest.param(1, (32_000, 64), 16, id="a head alone"),
    ],
)
def test_logprobs_cost_more_the_larger_the_head_is(
    layers: int, head: tuple[int, int], work: float
) -> None:
    own = prompt_logprob_work([head, (layers,)], *head)
    assert own == pytest.approx(work, abs=0.01)
    assert prompt_logprob_work([head, head, (layers,)], *head) == own  # an untied head
