"""What random weights write under a constraint: always a text of the grammar, ended rightly."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from engine.constraint.grammar import allowed_tokens, compile_grammar
from engine.messages import Constraint, FinishReason
from service.constraint.schema import enforceable
from service.constraint.schema_grammar import schema_grammar
from tests.engine.constraint.random_schemas import SchemaMaker
from tests.engine.constraint.running import Engine, Model, lark

POCKET = Path(__file__).resolve().parents[3] / "pocket" / "weights"
PERSON = lark(
    "start: "
    + schema_grammar(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 8},
                "age": {"type": "integer", "minimum": 0, "maximum": 150},
            },
            "required": ["name", "age"],
            "additionalProperties": False,
        }
    )
)


def answers_to_random_schemas(
    engine: Engine, seeds: range, *, temperature: float
) -> Iterator[tuple[int, dict[str, object], FinishReason, str]]:
    """Seed, schema, how the answer ended, and its text; thirty-two at a time."""
    for first in range(seeds.start, seeds.stop, 32):
        asked = {}
        for seed in range(first, min(first + 32, seeds.stop)):
            schema = SchemaMaker(seed).make()
            read = enforceable(schema, "schema")
            assert not read.left_out
            handle = engine.submit(
                lark("start: " + schema_grammar(read.schema)),
                seed=seed,
                temperature=temperature,
                max_tokens=480,
            )
            asked[handle] = (seed, schema)
        for handle, answer in engine.run().items():
            assert answer.finished.error is None
            yield (*asked[handle], answer.finished.reason, engine.text(answer))


def counted(engine: Engine, seeds: range, *, temperature: float) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed, schema, reason, text in answers_to_random_schemas(
        engine, seeds, temperature=temperature
    ):
        counts[reason.value] += 1
        if reason is FinishReason.STOP:
            try:
                jsonschema.validate(json.loads(text), schema)
            except (json.JSONDecodeError, jsonschema.ValidationError) as error:
                raise AssertionError(f"schema {seed}: {text!r}: {error}") from error
    return counts


def test_answers_of_random_weights_match_random_schemas(engine: Engine) -> None:
    counts = counted(engine, range(64), temperature=1.0)
    assert counts["stop"] >= 0.97 * 64
    assert counts["stop"] + counts["length"] == 64


@pytest.mark.slow
def test_answers_of_random_weights_match_a_thousand_random_schemas(engine: Engine) -> None:
    counts = counted(engine, range(1000), temperature=1.0)
    print(f"random weights, 1,000 random schemas: {dict(counts)}")
    assert counts["stop"] >= 970
    assert counts["stop"] + counts["length"] == 1000


@pytest.fixture(scope="module")
def pocket() -> Iterator[Engine]:
    engine = Engine(Model(POCKET, load_format="auto"))
    yield engine
    engine.close()


def test_answers_of_pocket_match_random_schemas(pocket: Engine) -> None:
    counts = counted(pocket, range(24), temperature=0.7)
    assert counts["stop"] >= 20
    assert counts["stop"] + counts["length"] == 24


@pytest.mark.slow
def test_answers_of_pocket_match_a_thousand_random_schemas(pocket: Engine) -> None:
    counts = counted(pocket, range(1000), temperature=0.7)
    print(f"pocket, 1,000 random schemas: {dict(counts)}")
    assert counts["stop"] >= 850
    assert counts["stop"] + counts["length"] == 1000


def test_greedy_answers_take_the_reference_s_most_likely_token_that_the_grammar_allows(
    engine: Engine, model: Model, oracle: PreTrainedModel
) -> None:
    prompt = [5, 6, 7]
    answer = engine.run_one(PERSON, prompt=prompt, temperature=0.0, max_tokens=100)
    assert answer.finished.reason is FinishReason.STOP
    with torch.no_grad():
        logits = oracle(torch.tensor([prompt + answer.token_ids])).logits[0].float()
    matcher = compile_grammar(Constraint(grammar=PERSON), model.tokens)
    overruled = 0
    for row, token in zip(logits[len(prompt) - 1 :], answer.token_ids, strict=False):
        bits = np.unpackbits(
            allowed_tokens(matcher, model.tokens).mask.view(np.uint8), bitorder="little"
        )
        free = int(row.argmax())
        row[torch.from_numpy(bits[: len(row)]) == 0] = float("-inf")
        assert int(row.argmax()) == token
        overruled += free != token
        matcher.consume_token(token)
    assert overruled > 5  # or the grammar had nothing to say
