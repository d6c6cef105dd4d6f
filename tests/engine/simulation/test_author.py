"""What a simulated model says: its script to the token, or plain words of a length asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.messages import FinishReason, SamplingParams
from engine.simulation.script import ScriptError
from tests.engine.simulation.simulated_engine import (
    TOKENS,
    SimulatedEngine,
    greedy,
    prompt,
    write_script,
)


def test_without_a_script_it_says_sentences_and_ends_in_the_range_asked_for() -> None:
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
