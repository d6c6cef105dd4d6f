"""A seeded request gives the same tokens whatever else happens in the engine."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from engine.messages import Generate, SamplingParams, Submit
from tests.engine.driving import CONNECTION, Engine, Output
from tests.engine.tiny_models import VARIANTS, VOCABULARY, save_model

LENGTH = 80


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("model")
    save_model(VARIANTS["qwen3"], directory)
    return directory


def prompt(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(VOCABULARY), k=length)


REQUEST = prompt(33, seed=1)
SAMPLED = {
    "hot": SamplingParams(max_tokens=LENGTH, seed=11, temperature=1.5),
    "filtered": SamplingParams(max_tokens=LENGTH, seed=12, top_k=40, top_p=0.95, min_p=0.01),
    "penalised": SamplingParams(
        max_tokens=LENGTH,
        seed=13,
        temperature=1.2,
        repetition_penalty=1.1,
        presence_penalty=0.5,
        frequency_penalty=0.2,
    ),
}


@pytest.fixture(params=list(SAMPLED))
def params(request: pytest.FixtureRequest) -> SamplingParams:
    return SAMPLED[request.param]


@pytest.fixture
def alone(model: Path, params: SamplingParams) -> list[int]:
    [output] = Engine(model).generate([REQUEST], params)
    assert len(output.token_ids) == LENGTH
    return output.token_ids


def mates(count: int) -> tuple[list[list[int]], list[SamplingParams]]:
    """Other requests of all lengths and kinds."""
    kinds = [
        SamplingParams(max_tokens=30 + i, seed=i, temperature=i % 3, logprobs=i % 2 or None)
        for i in range(count)
    ]
    return [prompt(3 + 7 * i, seed=100 + i) for i in range(count)], kinds


AHEAD = pytest.mark.parametrize("ahead", [False, True], ids=["", "one step ahead"])


@AHEAD
def test_in_a_batch_of_sixteen(
    model: Path, params: SamplingParams, alone: list[int], ahead: bool
) -> None:
    prompts, kinds = mates(15)
    engine = Engine(model, max_num_batched_tokens=64, async_scheduling=ahead)
    outputs = engine.generate(
        [*prompts[:7], REQUEST, *prompts[7:]], [*kinds[:7], params, *kinds[7:]]
    )
    assert outputs[7].token_ids == alone


def test_in_a_fresh_engine_with_other_settings(
    model: Path, params: SamplingParams, alone: list[int]
) -> None:
    engine = Engine(model, block_size=32, max_num_batched_tokens=16, enable_prefix_caching=False)
    [output] = engine.generate([REQUEST], params)
    assert output.token_ids == alone


@AHEAD
def test_after_a_forced_preemption(
    model: Path, params: SamplingParams, alone: list[int], ahead: bool
) -> None:
    engine = Engine(model, block_size=8, num_kv_blocks=20, async_scheduling=ahead)
    first = SamplingParams(max_tokens=90, temperature=0.0)
    outputs = engine.generate([prompt(40, seed=2), REQUEST], [first, params])
    assert outputs[1].finished is not None
    assert outputs[1].finished.preemptions > 0
    assert outputs[1].token_ids == alone


def test_continued_in_another_engine_from_the_tokens_so_far(
    model: Path, params: SamplingParams, alone: list[int]
) -> None:
    engine = Engine(model)
    cut = 29
    engine.core.add(
        CONNECTION,
        Submit(
            handle=0,
            request_id="continued",
            prompt_token_ids=REQUEST,
            task=Generate(params, output_token_ids=alone[:cut]),
            arrival_time=0.0,
        ),
    )
    outputs = [Output()]
    while engine.core.has_work:
        engine.collect(engine.core.step()[CONNECTION], outputs, 0)
    assert alone[:cut] + outputs[0].token_ids == alone


def test_another_seed_gives_other_tokens(model: Path, alone: list[int]) -> None:
    other = SamplingParams(max_tokens=LENGTH, seed=99, temperature=1.5)
    [output] = Engine(model).generate([REQUEST], other)
    assert output.token_ids != alone
