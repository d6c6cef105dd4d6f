"""What a simulated model writes: its script exactly, or plain words of a requested length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.messages import FinishReason, SamplingParams
from engine.simulation.author import Author
from engine.simulation.script import ScriptError, parse_script
from engine.step.sequence import Sequence
from tests.engine.simulation.simulated_engine import (
    TOKENS,
    SimulatedEngine,
    greedy,
    prompt,
    write_script,
)


def test_without_a_script_it_writes_sentences_of_the_requested_length() -> None:
    engine = SimulatedEngine("simulated:instant,output=20-40")
    outputs = engine.generate(
        [prompt(9, first) for first in range(100, 140)], SamplingParams(max_tokens=100)
    )
    lengths = set()
    texts = []
    for output in outputs:
        assert output.finished is not None
        assert output.finished.reason is FinishReason.STOP
        assert output.finished.stop_token_id == TOKENS.eos == output.token_ids[-1]
        lengths.add(len(output.token_ids) - 1)
        texts.append(TOKENS.decode(output.token_ids))
    assert all(text[0].isupper() and text.endswith("<|im_end|>") for text in texts)
    assert len(set(texts)) > 20
    assert lengths <= set(range(20, 41))
    assert len(lengths) > 5


def test_a_script_is_said_to_the_token(tmp_path: Path) -> None:
    path = write_script(
        tmp_path,
        {"when": "exact", "reply": ["<tool_", "call>", 42, "<tool_call>"]},
        {"when": "go on", "reply": "Well", "end": False},
        {"reply": "Hello <|im_end|> there"},
    )
    engine = SimulatedEngine(f"simulated:instant,script={path}")
    exact, endless, ended = engine.generate(
        [TOKENS.encode(text) for text in ("exact", "go on", "hi")], greedy(30)
    )
    call = TOKENS.encode("<tool_call>")
    assert len(call) == 1
    pieces = TOKENS.encode("<tool_") + TOKENS.encode("call>")
    assert exact.token_ids == [*pieces, 42, *call, TOKENS.eos]
    assert len(endless.token_ids) == 30
    assert endless.token_ids[:1] == TOKENS.encode("Well")[:1]
    assert ended.token_ids == [*TOKENS.encode("Hello "), TOKENS.eos]


def test_a_reply_s_token_ids_must_be_in_the_vocabulary(tmp_path: Path) -> None:
    path = write_script(tmp_path, {"reply": "fine"}, {"reply": [TOKENS.vocab_size]})
    with pytest.raises(ScriptError, match=r"line 2: token id \d+ is not in the vocabulary"):
        SimulatedEngine(f"simulated:instant,script={path}")


def sequence(uid: int, prompt_ids: list[int], **params: Any) -> Sequence:
    sampling = SamplingParams(max_tokens=99, **params)
    return Sequence(uid, f"r{uid}", list(prompt_ids), len(prompt_ids), sampling)


def said(author: Author, speaker: Sequence, count: int) -> list[int]:
    begin = speaker.num_output_tokens
    for _ in range(count):
        speaker.token_ids.append(author.next_token(speaker))
    return speaker.output_token_ids[begin:]


def test_an_answer_continues_after_a_forced_token() -> None:
    author = Author(TOKENS, None, lengths=(20, 20))
    free, forced = sequence(1, prompt(9)), sequence(2, prompt(9))
    whole = said(author, free, 21)
    assert whole[20] == TOKENS.eos
    begin = said(author, forced, 4)
    forced.token_ids.append(7)
    assert [*begin, *said(author, forced, 16)] == [*whole[:4], *whole[5:]]


@pytest.mark.parametrize("params", [{"min_tokens": 12}, {"ignore_eos": True}])
def test_an_answer_that_may_not_end_yet_continues_in_plain_words(params: dict[str, Any]) -> None:
    script = parse_script(json.dumps({"reply": "Hello"}).encode(), "script")
    author = Author(TOKENS, script, lengths=(1, 1))
    hello = TOKENS.encode("Hello")
    assert said(author, sequence(1, prompt(9)), len(hello) + 1) == [*hello, TOKENS.eos]
    longer = said(author, sequence(2, prompt(9), **params), 12)
    assert longer[: len(hello)] == hello
    assert TOKENS.eos not in longer


def test_the_answer_is_kept_until_the_sequence_is_forgotten() -> None:
    author = Author(TOKENS, None, lengths=(30, 30))
    speaker, other = sequence(1, prompt(9)), sequence(1, prompt(9, 500))
    first = said(author, speaker, 20)
    author.forget(1)
    author.forget(99)  # never asked
    assert said(author, other, 20) != first
    author.forget(1)
    assert said(author, sequence(1, prompt(9)), 20) == first
