"""With ``--deterministic``, what a request gets does not depend on its company, to the last bit."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.architecture.errors import ModelError
from engine.cpu.library import LibraryUnavailableError, library
from engine.messages import Generate, SamplingParams, Submit
from engine.run.model_runner import ModelRunner
from tests.engine.driving import CONNECTION, Engine, Output, load_runner
from tests.engine.tiny_models import VARIANTS, VOCABULARY, Variant, save_model

try:
    library()
except LibraryUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

SUBJECTS: dict[str, Variant] = {
    "qwen3": VARIANTS["qwen3"],
    "sliding window": Variant(
        "qwen3",
        {
            **{"num_hidden_layers": 2, "head_dim": 64, "num_attention_heads": 4},
            **{"num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": 13},
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
}
SETTINGS: dict[str, Any] = {
    **{"deterministic": True, "block_size": 8, "num_kv_blocks": 40, "max_model_len": 200},
}
SHARED_BEGINNINGS = 4
UIDS = itertools.count()


@dataclass(frozen=True)
class Wish:
    """``step``: of the engine at which it arrives."""

    prompt: list[int]
    params: SamplingParams
    step: int


def some_params(chance: random.Random, most: int) -> SamplingParams:
    params = SamplingParams(
        max_tokens=chance.randint(1, most),
        temperature=0.0,
        ignore_eos=True,
        logprobs=chance.choice([None, 0, 0, 0, 3]),
    )
    if chance.random() < 0.5:
        params = msgspec.structs.replace(
            params,
            temperature=chance.choice([0.3, 1.0, 2.0]),
            top_p=chance.choice([1.0, 0.7]),
            top_k=chance.choice([0, 5]),
            seed=chance.randrange(1 << 30),
        )
    if chance.random() < 0.2:
        params = msgspec.structs.replace(params, presence_penalty=0.7)
    return params


def some_wishes(chance: random.Random, longest: int, most_tokens: int) -> list[Wish]:
    """Prompts with common beginnings, so that the prefix cache is hit."""
    beginnings = [
        random.Random(number).choices(range(VOCABULARY), k=longest // 2)
        for number in range(SHARED_BEGINNINGS)
    ]
    wishes = []
    for _ in range(chance.randint(2, 6)):
        begins = chance.choice(beginnings)[: chance.randint(0, longest // 2)]
        rest = chance.choices(range(VOCABULARY), k=chance.randint(1, longest // 2))
        wishes.append(Wish(begins + rest, some_params(chance, most_tokens), chance.randint(0, 9)))
    return wishes


def outputs_of(runner: ModelRunner, wishes: list[Wish], **settings: Any) -> list[Output]:
    engine = Engine(Path(), runner=runner, **settings)
    engine.core._uids = UIDS  # a runner has one core elsewhere, and knows sequences by these
    outputs, waiting, number = [Output() for _ in wishes], dict(enumerate(wishes)), 0
    while waiting or engine.core.has_work:
        for handle in [h for h, wish in waiting.items() if wish.step <= number]:
            wish = waiting.pop(handle)
            engine.core.add(
                CONNECTION,
                Submit(
                    handle=handle,
                    request_id=f"request-{handle}",
                    prompt_token_ids=wish.prompt,
                    task=Generate(wish.params),
                    arrival_time=0.0,
                ),
            )
        if engine.core.has_work:
            engine.collect(engine.core.step()[CONNECTION], outputs, 0)
        number += 1
    return outputs


def check_batches(runner: ModelRunner, seeds: range, *, longest: int, most_tokens: int) -> int:
    """Return how many prompt tokens came from the prefix cache."""
    cached = 0
    for seed in seeds:
        chance = random.Random(seed)
        wishes = some_wishes(chance, longest, most_tokens)
        together = outputs_of(
            runner,
            wishes,
            max_num_batched_tokens=chance.choice([16, 19, 33, 64, 512]),
            max_num_seqs=chance.choice([2, 3, 16]),
        )
        for wish, output in zip(wishes, together, strict=True):
            alone = replace(wish, step=0)
            [expected] = outputs_of(runner, [alone], enable_prefix_caching=False)
            assert output.token_ids == expected.token_ids, seed
            assert output.logprobs == expected.logprobs, seed  # to the last bit
            assert output.finished is not None
            cached += output.finished.cached_tokens
    return cached


@pytest.fixture(scope="module", params=SUBJECTS)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("deterministic")
    save_model(SUBJECTS[request.param], folder)
    return folder


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    "count", [25, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_on_a_cpu(directory: Path, dtype: str, count: int) -> None:
    runner = load_runner(directory, dtype=dtype, threads=2, **SETTINGS)
    assert check_batches(runner, range(count), longest=90, most_tokens=24) > 0


@pytest.mark.parametrize(
    "count", [2, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(36_000)])]
)
def test_on_a_gpu(directory: Path, count: int) -> None:
    """Through Triton's interpreter where there is no GPU."""
    pytest.importorskip("triton")
    runner = load_runner(directory, dtype="bfloat16", device="auto", gpu_path="triton", **SETTINGS)
    assert check_batches(runner, range(count), longest=30, most_tokens=5) > 0


def test_without_it_a_prompt_s_division_shows(directory: Path) -> None:
    """So the tests above can fail."""
    runner = load_runner(directory, dtype="bfloat16", **{**SETTINGS, "deterministic": False})
    with pytest.raises(AssertionError):
        check_batches(runner, range(25), longest=90, most_tokens=24)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt2", {}),
        ("qwen3", {"cpu_path": "torch"}),
        ("qwen3", {"dtype": "float16"}),
        ("qwen3", {"kv_cache_dtype": "fp8"}),
    ],
)
def test_what_cannot_promise_it_is_refused(
    tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    save_model(VARIANTS[name], tmp_path)
    with pytest.raises(ModelError, match="--deterministic is not supported"):
        load_runner(tmp_path, **SETTINGS, **settings)
