"""The trial answers each request with one verdict, whatever the request holds."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from pathlib import Path

import msgspec
import pytest

from engine.constraint.grammar import Tokens
from engine.constraint.trial import serve
from engine.messages import FRAME_HEADER, Constraint
from engine.trial_messages import ConvertGrammar, ToTrial, TryGrammar, Verdict
from tests.engine.constraint.running import WORD, lark
from tests.service.tiny_model import build_tokenizer


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    directory = tmp_path_factory.mktemp("vocabulary")
    build_tokenizer().save(str(directory / "tokenizer.json"))
    return Tokens(directory, vocab_size=None, eos_token_ids=frozenset())


def frame(body: bytes) -> bytes:
    return FRAME_HEADER.pack(len(body)) + body


def verdicts(tokens: Tokens, *requests: ToTrial | bytes) -> list[Verdict]:
    """What is written for these, the first verdict included; the input ends after them."""
    bodies = [r if isinstance(r, bytes) else msgspec.msgpack.encode(r) for r in requests]
    sink = BytesIO()
    serve(tokens, BytesIO(b"".join(map(frame, bodies))), sink)
    found, written = [], sink.getvalue()
    while written:
        (size,) = FRAME_HEADER.unpack_from(written)
        body, written = written[FRAME_HEADER.size :][:size], written[FRAME_HEADER.size + size :]
        found.append(msgspec.msgpack.decode(body, type=Verdict))
    return found


def grammar(text: str) -> TryGrammar:
    return TryGrammar(Constraint(grammar=text))


def test_it_says_that_it_is_ready_before_it_is_asked_anything(tokens: Tokens) -> None:
    assert verdicts(tokens) == [Verdict()]


def test_valid_grammars_pass_and_others_are_refused_with_the_reason(tokens: Tokens) -> None:
    _, sound, broken, empty, after = verdicts(
        tokens,
        grammar(WORD),
        grammar(lark("start: /(/")),
        grammar(lark("start: X", "X: /a+/ & /b+/")),
        grammar(WORD),
    )
    assert sound == after == Verdict()
    assert "unclosed group" in (broken.error or "")
    assert empty.error == "no text matches the grammar"


def test_a_converted_grammar_is_one_that_passes(tokens: Tokens) -> None:
    _, converted = verdicts(tokens, ConvertGrammar('root ::= "yes" | "no" [a-z]+'))
    assert converted.error is None
    assert converted.grammar is not None
    assert verdicts(tokens, grammar(converted.grammar))[1] == Verdict()


@pytest.mark.parametrize("gbnf", ["root ::= (", "(" * 100_000])
def test_invalid_gbnf_is_refused_with_an_explanation(tokens: Tokens, gbnf: str) -> None:
    _, refused, after = verdicts(tokens, ConvertGrammar(gbnf), grammar(WORD))
    assert refused.error
    assert refused.grammar is None
    assert after == Verdict()


def test_a_request_of_another_shape_is_refused_and_the_next_one_answered(tokens: Tokens) -> None:
    other = msgspec.msgpack.encode({"type": "unheard_of"})
    _, refused, after = verdicts(tokens, other, grammar(WORD))
    assert refused.error
    assert after == Verdict()


def test_it_ends_without_a_message_where_its_parent_reads_no_longer(tmp_path: Path) -> None:
    build_tokenizer().save(str(tmp_path / "tokenizer.json"))
    process = subprocess.Popen(
        [sys.executable, "-m", "engine.constraint.trial", "--model", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert (process.stderr.read(), process.wait(60)) == (b"", 0)
