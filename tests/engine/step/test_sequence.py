"""A sequence's tokens and its rank among others."""

from __future__ import annotations

from engine.messages import SamplingParams
from engine.step.sequence import MOST_OVERTAKEN, Sequence


def sequence(uid: int, *, priority: int = 0, overtaken: int = 0) -> Sequence:
    return Sequence(
        uid=uid,
        request_id="",
        token_ids=[1, 2, 3],
        num_prompt_tokens=3,
        params=SamplingParams(max_tokens=4),
        priority=priority,
        num_overtaken=overtaken,
    )


def test_urgent_ones_go_first_then_early_ones_and_before_all_who_was_overtaken_too_often() -> None:
    order = [
        sequence(5, priority=9, overtaken=MOST_OVERTAKEN),
        sequence(8, priority=-3, overtaken=MOST_OVERTAKEN + 1),  # among them age alone counts
        sequence(9, priority=-1, overtaken=MOST_OVERTAKEN - 1),
        sequence(3),
        sequence(4),
        sequence(1, priority=2),
    ]
    ranks = [each.rank for each in order]
    assert ranks == sorted(set(ranks))


def test_output_is_the_tokens_after_the_prompt() -> None:
    grown = sequence(1)
    assert (grown.num_tokens, grown.num_output_tokens, grown.output_token_ids) == (3, 0, [])
    grown.token_ids += [8, 9]
    assert (grown.num_tokens, grown.num_output_tokens, grown.output_token_ids) == (5, 2, [8, 9])


def test_sequences_are_compared_by_identity_not_by_contents() -> None:
    one, twin = sequence(1), sequence(1)
    assert one != twin
    one.block_table.append(4)
    assert twin.block_table == []
