"""A choice: from the tokens that arrive to the events that are sent."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.messages import FinishReason, TokenLogprobs
from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.engine.sequence import EngineSequence
from service.errors import EngineFailedError
from service.formats import Opening, ShippedFormat
from service.generation.choice import Choice, StopRules
from service.output.events import Finished, TextDelta
from service.output.log import fold
from tests.service.formats.test_shipped import SHIPPED, output_format
from tests.service.generation.desk import WatchedDesk, begun
from tests.service.output.parsing import cut
from tests.service.wire.chat.test_answer import end_with, fail, finish


@pytest.fixture(scope="module")
def checkpoint(tiny_model: Path) -> Checkpoint:
    return load_checkpoint(tiny_model)


def new_choice(checkpoint: Checkpoint, **fields: Any) -> Choice:
    [choice] = begun(WatchedDesk(), checkpoint, **fields).choices
    return choice


def ids(checkpoint: Checkpoint, text: str) -> list[int]:
    return checkpoint.tokenizer.encode(text, add_special_tokens=False)


def end(sequence: EngineSequence, reason: FinishReason, token: int | None = None) -> None:
    finish(sequence, 0, reason)
    if token is not None:
        end_with(sequence, token)


def starts_of(text: str) -> st.SearchStrategy[str]:
    return st.integers(1, len(text)).map(lambda size: text[:size])


TEXT = "Grüße 🚀, the quick brown STOP fox"


@pytest.mark.parametrize("strings", [(), ("STOP",), ("never",)])
@given(data=st.data())
def test_however_tokens_arrive_the_same_is_told(
    checkpoint: Checkpoint, strings: tuple[str, ...], data: st.DataObject
) -> None:
    tokens = ids(checkpoint, TEXT)
    choice = new_choice(checkpoint, stop=StopRules(strings=strings))
    sequence = choice.sequence
    while tokens:
        count = data.draw(st.integers(1, len(tokens)))
        sequence.generated += tokens[:count]
        sequence.logprobs += [TokenLogprobs(-0.5, 1, b"")] * count
        del tokens[:count]
        if not tokens:
            end(sequence, FinishReason.LENGTH)
        while choice.advance(data.draw(st.integers(1, 5))):
            pass
    assert choice.finished is not None
    stopped = "STOP" in strings
    assert fold(choice.events).content == (TEXT.partition("STOP")[0] if stopped else TEXT)
    assert choice.finished.reason == ("stop" if stopped else "length")
    assert choice.finished.matched == ("STOP" if stopped else None)
    assert choice.finished.tokens == len(choice.tokens) == len(choice.logprobs)


def test_what_matched_is_shown_only_when_asked(checkpoint: Checkpoint) -> None:
    [token] = ids(checkpoint, "!")
    for show, shown in ((False, "Hello"), (True, "Hello!")):
        choice = new_choice(checkpoint, stop=StopRules(token_ids=(token,), show=show))
        choice.sequence.generated += [*ids(checkpoint, "Hello"), token]
        end(choice.sequence, FinishReason.STOP, token)
        choice.advance()
        assert choice.finished is not None
        assert fold(choice.events).content == shown
        assert (choice.finished.reason, choice.finished.matched) == ("stop", token)
        assert choice.tokens[-1] == token  # it counts, also where its text is not shown
        assert choice.finished.is_last_hidden is not show


def test_an_incomplete_character_before_the_stop_token_does_not_cover_it(
    checkpoint: Checkpoint,
) -> None:
    half = checkpoint.vocabulary.token_bytes.index(b"\xf0")
    choice = new_choice(checkpoint)
    choice.sequence.generated += [*ids(checkpoint, "Hi"), half, 2]
    end(choice.sequence, FinishReason.STOP, 2)
    choice.advance()
    *_, last, finished = choice.events
    assert isinstance(last, TextDelta)
    assert (last.text, last.end) == ("\ufffd", len(choice.tokens) - 1)
    assert isinstance(finished, Finished)
    assert (finished.tokens, finished.is_last_hidden) == (len(choice.tokens), True)


def test_an_end_that_the_request_did_not_ask_for_matches_nothing(checkpoint: Checkpoint) -> None:
    choice = new_choice(checkpoint)
    choice.sequence.generated += [*ids(checkpoint, "Hello"), 2]
    end(choice.sequence, FinishReason.STOP, 2)
    choice.advance()
    assert choice.finished is not None
    assert (choice.finished.reason, choice.finished.matched) == ("stop", None)


def test_stop_strings_count_only_from_the_least_number_of_tokens_on(
    checkpoint: Checkpoint,
) -> None:
    once = ids(checkpoint, "a!")
    rules = StopRules(strings=("!",), min_tokens=len(once) + 1)
    choice = new_choice(checkpoint, stop=rules)
    choice.sequence.generated += ids(checkpoint, "a!") + ids(checkpoint, "b!c")
    choice.advance()
    assert fold(choice.events).content == "a!b"


@pytest.mark.parametrize("show", [False, True])
@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_a_stop_string_that_the_last_incomplete_character_completes_is_reported(
    checkpoint: Checkpoint, show: bool, reason: FinishReason
) -> None:
    half = checkpoint.vocabulary.token_bytes.index(b"\xf0")
    for strings, least, expected in (
        (("i\ufffd",), 0, "H"),
        (("i\ufffd",), 9, None),
        (("i\ufffd!",), 0, None),
    ):
        rules = StopRules(strings=strings, min_tokens=least, show=show)
        choice = new_choice(checkpoint, stop=rules)
        choice.sequence.generated += [*ids(checkpoint, "Hi"), half]
        end(choice.sequence, reason)
        choice.advance()
        assert choice.finished is not None
        told = (choice.finished.reason, choice.finished.matched)
        if expected is None:
            assert fold(choice.events).content == "Hi\ufffd"
            assert told == ("stop" if reason is FinishReason.STOP else "length", None)
        else:
            assert fold(choice.events).content == ("Hi\ufffd" if show else expected)
            assert told == ("stop", strings[0])


@pytest.mark.parametrize(
    ("said", "strings", "reasoning", "content", "matched"),
    [
        ("It needs it.\n</think>\n\nHe needs it.", ("needs",), "It needs it.", "He ", "needs"),
        ("It needs it.\n</think>\n\nNone.", ("needs",), "It needs it.", "None.", None),
        ("It needs", ("needs",), "It needs", "", None),
        ("a\n\nb\n</think>\n\nc\n\nd", ("\n\n",), "a\n\nb", "c", "\n\n"),
        ("a</think>b", ("</think>", "k>b"), "a", "b", None),
        ("a</think>\n\n \n", ("\n",), "a", "", None),
        ("a</think>\n\nHello STOP world.", ("Hello STOP",), "a", "", "Hello STOP"),
        ("a</think>\n\nHello  STOP world.", ("Hello STOP",), "a", "Hello  STOP world.", None),
        ("a</think>b</thin", ("</thin",), "a", "b", "</thin"),
        ("a</think>b<think>bad</think>bc", ("ba", "bc"), "abad", "b", "bc"),
        ("a</think>bX<think>X</think>c", ("XX",), "aX", "bXc", None),
    ],
)
def test_stop_strings_end_the_answer_not_the_reasoning(
    checkpoint: Checkpoint,
    said: str,
    strings: tuple[str, ...],
    reasoning: str,
    content: str,
    matched: str | None,
) -> None:
    for show in (False, True):
        rules = StopRules(strings=strings, show=show)
        choice = new_choice(checkpoint, parse=True, opening=Opening.REASONING, stop=rules)
        choice.sequence.generated += ids(checkpoint, said)
        end(choice.sequence, FinishReason.STOP)
        choice.advance()
        folded = fold(choice.events)
        shown = content + (matched if show and matched else "")
        assert (folded.reasoning, folded.content) == (reasoning, shown)
        assert choice.finished is not None
        assert choice.finished.matched == matched


REASONING = [shipped for shipped in SHIPPED if output_format(shipped).reasoning]


@pytest.mark.parametrize("shipped", REASONING, ids=lambda shipped: shipped.names[0])
@settings(max_examples=20)
@given(data=st.data())
def test_stop_strings_end_the_answer_wherever_tokens_are_cut(
    checkpoint: Checkpoint, shipped: ShippedFormat, data: st.DataObject
) -> None:
    form = output_format(shipped)
    assert form.reasoning is not None
    word = st.sampled_from(["Hello", "STOP", "a", "o", " ", "\n", "\n\n", "."])
    words = st.lists(word, min_size=1, max_size=8).map("".join)
    answer = "Hello" + data.draw(words)
    stops = data.draw(st.lists(st.one_of(words, starts_of(answer)), min_size=1, max_size=3))
    close = data.draw(st.sampled_from(form.reasoning.closes))
    gap = data.draw(st.sampled_from(["", " ", "\n\n"]))
    places = st.lists(st.integers(0, 10_000), max_size=20)
    opens = form.tool_call.opens if form.tool_call else ()
    stray = data.draw(st.sampled_from([*opens, ""]))  # opens no call
    before, after = (cut(text, data.draw(places)) for text in (f" {answer}\n", gap + answer))

    rules = StopRules(strings=tuple(stops))
    fields: dict[str, Any] = {"parse": True, "opening": Opening.REASONING, "stop": rules}
    fields["tools"] = {"f": None}
    choice = new_choice(dataclasses.replace(checkpoint, output_format=form), **fields)
    for piece in ("a", stray, *before, close, *after):
        choice.sequence.generated += ids(checkpoint, piece)
    end(choice.sequence, FinishReason.STOP)
    choice.advance()
    found = [(answer.index(stop) + len(stop), -len(stop), stop) for stop in stops if stop in answer]
    first, size, matched = min(found, default=(len(answer), 0, None))
    assert choice.finished is not None
    assert choice.finished.matched == matched
    assert fold(choice.events).content == answer[: first + size]


def test_stop_strings_end_calls_after_reasoning(checkpoint: Checkpoint) -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {"x": "one two"}}\n</tool_call>'
    rules = StopRules(strings=("two",))
    fields = {"parse": True, "tools": {"f": None}, "opening": Opening.REASONING}
    choice = new_choice(checkpoint, stop=rules, **fields)
    choice.sequence.generated += ids(checkpoint, f"one two\n</think>\n\n{call}")
    choice.advance()
    assert choice.finished is not None
    assert choice.finished.matched == "two"
    folded = fold(choice.events)
    assert folded.reasoning == "one two"
    assert [call.arguments for call in folded.tool_calls] == ['{"x": "one ']


def test_without_a_parser_stop_strings_end_reasoning_too(checkpoint: Checkpoint) -> None:
    choice = new_choice(checkpoint, stop=StopRules(strings=("needs", "k>b")))
    choice.sequence.generated += ids(checkpoint, "<think>It</think>b needs")
    choice.advance()
    assert fold(choice.events).content == "<think>It</thin"


def test_complete_calls_make_an_end_one_of_calls_unless_it_was_cut_off(
    checkpoint: Checkpoint,
) -> None:
    text = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    for reason, told in ((FinishReason.STOP, "tool_calls"), (FinishReason.LENGTH, "length")):
        choice = new_choice(checkpoint, parse=True, tools={"f": None})
        choice.sequence.generated += ids(checkpoint, text)
        end(choice.sequence, reason)
        choice.advance()
        assert choice.finished is not None
        assert choice.finished.reason == told
        assert [call.name for call in fold(choice.events).tool_calls] == ["f"]


def test_a_failure_comes_behind_what_had_arrived(checkpoint: Checkpoint) -> None:
    choice = new_choice(checkpoint)
    choice.sequence.generated += ids(checkpoint, "Hello")
    fail(choice.sequence, "out of memory", is_refusal=False)
    choice.advance()
    assert fold(choice.events).content == "Hello"
    assert isinstance(choice.failure, EngineFailedError)
    assert (choice.done, choice.finished) == (True, None)
    assert not choice.advance()
