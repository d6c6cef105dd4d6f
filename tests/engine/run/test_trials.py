"""Sequences of no request take the blocks that they are given, and continue token by token."""

from __future__ import annotations

from engine.run.trials import EVERYTHING, next_trial_item, trial_item


def test_a_prompt_and_the_token_after_it() -> None:
    prompt = trial_item(-3, 5, range(2, 4))
    assert (prompt.start, prompt.end, prompt.completes) == (0, 5, True)
    assert prompt.sequence.block_table == [2, 3]
    after = next_trial_item(prompt)
    assert after.sequence is prompt.sequence
    assert (after.start, after.end, after.completes) == (5, 6, True)
    assert prompt.sequence.num_tokens == 6
    assert trial_item(-1, 1, [0], EVERYTHING).sequence.params is EVERYTHING
