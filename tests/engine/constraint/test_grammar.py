"""Grammars allow exactly the tokens that continue one of their texts, within their limits."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np

from engine.constraint.grammar import Tokens, allowed_tokens, compile_grammar
from engine.messages import Constraint, FinishReason
from pocket import MODEL_DIR
from tests.engine.constraint.running import Engine, Model, lark

NAME = lark("start: /[A-Z][a-z]{2,6}/")


def test_every_allowed_token_continues_a_text_of_the_grammar_and_no_other_does(
    model: Model,
) -> None:
    matcher = compile_grammar(Constraint(grammar=NAME), model.tokens)
    whole, part = re.compile(r"[A-Z][a-z]{2,6}"), re.compile(r"[A-Z]?|[A-Z][a-z]{0,6}")
    said = ""
    for step in range(4):
        allowed = allowed_tokens(matcher, model.tokens)
        bits = np.unpackbits(allowed.mask.view(np.uint8), bitorder="little")
        for token in range(model.runner.info.vocab_size):
            text = model.text([token])
            special = token in model.tokens.eos_token_ids
            fits = bool(text) and bool(part.fullmatch(said + text)) and not special
            assert bits[token] == (allowed.ends if special else fits), (said, token, text)
        assert allowed.ends == bool(whole.fullmatch(said))
        letter = model.tokenizer.encode("H" if step == 0 else "o").ids[0]
        matcher.consume_token(letter)
        said += "H" if step == 0 else "o"


def test_a_client_s_grammar_may_not_be_as_ambiguous_as_ours(engine: Engine) -> None:
    grammar = lark("start: e", "e: e e e | e e | /[a-c]/")
    ours = Constraint(grammar=grammar)
    client = Constraint(grammar=grammar, row_items=50)
    free = engine.run_one(grammar, ignore_eos=True, max_tokens=30, temperature=1.0)
    assert ours != client
    answer = engine.run_one(
        None, constraint=client, ignore_eos=True, max_tokens=30, temperature=1.0
    )
    assert free.finished.reason is FinishReason.LENGTH
    assert answer.finished.reason is FinishReason.ERROR
    assert "items" in str(answer.finished.error)


def test_an_end_beyond_the_logits_leaves_grammars_as_they_are() -> None:
    tokens = Tokens(MODEL_DIR, vocab_size=2000, eos_token_ids=frozenset({1, 2000}))
    assert tokens.eos_token_ids == {1}


def test_the_engine_imports_without_the_grammar_library() -> None:
    code = (
        "import sys; sys.modules['llguidance'] = None\n"
        "import engine.loop.core, engine.loop.process, engine.run.model_runner\n"
        "from engine.constraint.grammar import Tokens\n"
        "from engine.step.grammar_state import GrammarError\n"
        "from pathlib import Path\n"
        "try: Tokens(Path('.'), vocab_size=None, eos_token_ids=frozenset())\n"
        "except GrammarError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "llguidance is not installed"
