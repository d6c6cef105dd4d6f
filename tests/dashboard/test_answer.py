"""An answer grows piece by piece."""

from __future__ import annotations

from dashboard.answer import Answer, Timings, Token


def test_the_size_counts_all_that_is_kept() -> None:
    answer = Answer(sent=0.0)
    answer.think("Hm")
    answer.say("Yes")
    answer.call(0, name="ab", arguments="{}")
    answer.tokens.append(Token("Yes", -0.1))
    assert answer.size == 12


def test_a_copy_does_not_grow_with_the_answer() -> None:
    answer = Answer(sent=0.0)
    answer.call(0, name="look", arguments="{")
    copy = answer.copy()
    answer.call(0, arguments="}")
    assert copy.tool_calls[0].arguments == "{"


def test_a_call_with_a_wild_index_costs_no_memory() -> None:
    answer = Answer(sent=0.0)
    answer.call(10**9, name="a")
    answer.call(-5, name="b")
    assert len(answer.tool_calls) == 128


def test_how_long_it_reasoned_is_the_servers_time_of_the_last_thought() -> None:
    answer = Answer(sent=0.0)
    for total, text in ((120.0, ""), (1600.0, ""), (1700.0, "Yes"), (9000.0, "!")):
        answer.think("" if text else "Hm")
        answer.say(text)
        answer.measure(Timings(time_to_first_token_ms=100.0, total_ms=total))
    assert answer.thought_ms == 1500.0
