from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from dashboard.why_slow import gap_cause, prefix_sentence, slow_because
from observability.admin_api import (
    EventKind,
    KeptRequest,
    Neighbour,
    Prefill,
    PrefixReport,
    RequestEvent,
)
from observability.outcomes import PREFIX_MISS_REASONS


def kept(**given: Any) -> KeptRequest:
    return KeptRequest(request_id="req_own", received=0.0, route="chat_completions", **given)


def test_a_wait_for_kv_blocks_is_named_with_its_share() -> None:
    request = kept(
        phases={"queue": 6.1, "prefill": 0.8, "decode": 2.9},
        total=9.84,
        limited_by="kv",
        preemptions=2,
    )
    assert slow_because(request) == (
        "It waited 6.10 s for KV cache blocks (62.0 % of the total); it was preempted 2 times."
    )


def test_another_request_s_prompt_in_a_long_step_is_named() -> None:
    steps = (
        Neighbour(1.0, 0.3, 20, 4),
        Neighbour(2.0, 0.2, 8200, 4, (Prefill("req_long", 8192),)),
    )
    request = kept(phases={"decode": 2.0}, total=2.0, neighbours=steps)
    assert "a step of 200 ms with 4 sequences and 8,192 prompt tokens of req_long" in slow_because(
        request
    )


def test_a_step_that_hardly_counted_is_not_blamed() -> None:
    step = Neighbour(2.0, 0.032, 7, 2, (Prefill("req_short", 5),))
    assert "shared" not in slow_because(
        kept(phases={"decode": 15.4}, total=15.4, neighbours=(step,))
    )
    assert "shared" in slow_because(kept(phases={"decode": 0.4}, total=0.4, neighbours=(step,)))


def test_a_step_with_one_sequence_is_in_the_singular() -> None:
    step = Neighbour(2.0, 0.2, 8200, 1, (Prefill("req_long", 8192),))
    request = kept(phases={"decode": 2.0}, total=2.0, neighbours=(step,))
    assert "a step of 200 ms with 1 sequence and 8,192 prompt tokens" in slow_because(request)


def test_a_long_answer_says_how_many_tokens_and_how_fast() -> None:
    request = kept(phases={"decode": 4.2}, total=4.2, output_tokens=211)
    assert slow_because(request) == (
        "Its answer took 4.20 s to generate (100 % of the total); 211 tokens, 20.0 ms apart on "
        "average."
    )


def test_a_refused_request_was_not_admitted() -> None:
    refused = kept(phases={"admit": 0.495}, total=0.5, outcome="refused:overloaded")
    assert slow_because(refused) == (
        "It waited 495 ms to be admitted to the engine and never was (99.0 % of the total)."
    )
    served = kept(phases={"admit": 0.495, "queue": 0.001}, total=0.5, outcome="stop")
    assert slow_because(served).startswith("It took 495 ms to be admitted to the engine (")


def test_time_in_no_phase_is_named_where_it_was_the_longest() -> None:
    refused = kept(phases={"receive": 0.0006, "admit": 0.0001}, other=0.023, total=0.0237)
    assert slow_because(refused) == ("It spent 23.0 ms outside every phase (97.0 % of the total).")


def test_without_phases_nothing_is_made_up() -> None:
    assert slow_because(kept(total=2.0)) == "None of its phases was measured."


@pytest.mark.parametrize("reason", PREFIX_MISS_REASONS)
def test_every_reason_of_a_miss_has_its_sentence(reason: str) -> None:
    report = PrefixReport(16, 64, reason, "req_other", 3.0, at_message=3, messages=7, role="tool")
    text = prefix_sentence(report)
    assert text.startswith("16 of 64 prompt tokens were cached. ")
    assert PREFIX_MISS_REASONS[reason] in text
    assert "req_other" in text
    assert text.endswith(" The first one that was not is in message 3 of 7 (tool).")


def test_two_prompts_differ_where_the_block_that_missed_reaches_to() -> None:
    """The same instructions, then another question: the block may begin in the instructions."""
    report = PrefixReport(16, 64, "diverged", "req_other", at_message=1, messages=2, role="system")
    within = prefix_sentence(structs.replace(report, to_message=1))
    assert within.endswith("(req_other). They differ in message 1 of 2 (system).")
    across = prefix_sentence(structs.replace(report, to_message=2))
    assert across.endswith(
        " They differ at the end of message 1 (system) or after it, up to message 2 of 2: prompts "
        "are compared in blocks of tokens."
    )


def test_a_miss_for_its_salt_speaks_of_keys_too() -> None:
    """With several keys, prompts of each are apart although no one sent a cache_salt."""
    text = prefix_sentence(PrefixReport(0, 64, "salt"))
    assert text.endswith(" the same tokens are cached for another API key or cache_salt only.")


def test_a_gap_s_cause_is_what_happened_in_it() -> None:
    request = kept(
        events=(RequestEvent(EventKind.PREEMPTED, 2.0),),
        neighbours=(Neighbour(9.0, 1.0, 8, 2, (Prefill("req_long", 8),)),),
    )
    assert gap_cause(request, 2.5, 1.0) == "preempted"
    assert "req_long" in gap_cause(request, 9.0, 1.1)
    assert gap_cause(request, 5.0, 0.5) == ""
