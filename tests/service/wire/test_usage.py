"""What a request cost, in tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.wire.usage import running_usage, usage_of
from tests.service.wire.chat.test_answer import Played, one_each


@pytest.fixture(scope="module")
def checkpoint(tiny_model: Path) -> Checkpoint:
    return load_checkpoint(tiny_model)


def test_output_tokens_are_all_that_were_made_and_reasoning_is_a_part(
    checkpoint: Checkpoint,
) -> None:
    text = "<think>\nHm.\n</think>\n\nSo."
    generation = Played(checkpoint, text, one_each()).generation
    usage = usage_of(generation)
    made = len(checkpoint.tokenizer.encode(text, add_special_tokens=False))
    assert (usage.prompt_tokens, usage.completion_tokens) == (3, made)
    assert usage.total_tokens == 3 + made
    assert 0 < usage.completion_tokens_details.reasoning_tokens < made
    assert usage.prompt_tokens_details.cached_tokens == 0
    plain = usage_of(Played(checkpoint, "So.", one_each()).generation)
    assert plain.completion_tokens_details.reasoning_tokens == 0


def test_a_request_for_no_output_gets_none(checkpoint: Checkpoint) -> None:
    usage = usage_of(Played(checkpoint, "So.", one_each()).generation, completion_tokens=0)
    assert (usage.completion_tokens, usage.total_tokens) == (0, usage.prompt_tokens)


def test_running_usage_is_json_whose_total_is_the_sum() -> None:
    assert json.loads(running_usage(7, 5)) == {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "total_tokens": 12,
    }
