"""With ``--deterministic``, what a request gets does not depend on the batch, to the last bit."""

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

SMALL = {"num_hidden_layers": 2}
SUBJECTS: dict[str, Variant] = {
    "qwen3": replace(VARIANTS["qwen3"], settings=VARIANTS["qwen3"].settings | SMALL),
    "sliding window": Variant(
        "qwen3",
        {
            **(SMALL | {"head_dim": 64, "num_attention_heads": 4}),
            **{"num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": 13},
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
}
SETTINGS: dict[str, Any] = {
    **{"deterministic": True, "block_size": 8, "num_kv_blocks": 40, "max_model_len": 200},
}
UIDS = itertools.count()
SLOW = [pytest.mark.slow, pytest.mark.timeout(7200)]


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
    """Prompts with a common beginning, so that the prefix cache is hit."""
    beginning = chance.choices(range(VOCABULARY), k=longest // 2)
    wishes = []
    for _ in range(chance.randint(2, 6)):
        shared = chance.choice([chance.randint(0, longest // 2), longest // 2])
        begins = beginning[:shared]
        rest = chance.choices(range(VOCABULARY), k=chance.randint(1, longest // 2))
        wishes.append(Wish(begins + rest, some_params(chance, most_tokens), chance.randint(0, 14)))
    return wishes


def outputs_of(
    runner: ModelRunner, wishes: list[Wish], **settings: Any
) -> tuple[list[Output], int]:
    """Return also how many steps it took."""
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
    return outputs, number


def check_batches(runner: ModelRunner, least: int, *, longest: int, most_tokens: int) -> int:
    """Run at least so many steps with random batches. Return how many prompt tokens came from the
    prefix cache."""
    batches = cached = seed = 0
    while batches < least:
        seed += 1
        chance = random.Random(seed)
        wishes = some_wishes(chance, longest, most_tokens)
        together, steps = outputs_of(
            runner,
            wishes,
            max_num_batched_tokens=chance.choice([16, 19, 33, 64, 512]),
            max_num_seqs=chance.choice([2, 3, 16]),
        )
        for wish, output in zip(wishes, together, strict=True):
            alone = replace(wish, step=0)
            [expected], _ = outputs_of(runner, [alone], enable_prefix_caching=False)
            assert output.token_ids == expected.token_ids, seed
            assert output.logprobs == expected.logprobs, seed  # to the last bit
            assert output.finished is not None
            cached += output.finished.cached_tokens
        batches += steps
    return cached


@pytest.fixture(scope="module", params=SUBJECTS)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("deterministic")
    save_model(SUBJECTS[request.param], folder)
    return folder


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("least", [100, pytest.param(10_000, marks=SLOW)])
def test_on_a_cpu(directory: Path, dtype: str, least: int) -> None:
    runner = load_runner(directory, dtype=dtype, threads=2, **SETTINGS)
    assert check_batches(runner, least, longest=90, most_tokens=24) > 0


@pytest.mark.parametrize(
    ("name", "least"),
    [("qwen3", 15), *(pytest.param(name, 1000, marks=SLOW) for name in SUBJECTS)],
)
def test_on_a_gpu(tmp_path: Path, name: str, least: int) -> None:
    """Through Triton's interpreter where there is no GPU."""
    pytest.importorskip("triton")
    save_model(SUBJECTS[name], tmp_path)
    runner = load_runner(tmp_path, dtype="bfloat16", device="auto", gpu_path="triton", **SETTINGS)
    assert check_batches(runner, least, longest=34, most_tokens=4) > 0


def test_without_it_a_prompt_s_division_shows(directory: Path) -> None:
    """So the tests above can fail. In float32: where a CPU multiplies bfloat16, rounded inputs hide
    most differences of the last bits."""
    runner = load_runner(directory, dtype="float32", **{**SETTINGS, "deterministic": False})
    with pytest.raises(AssertionError):
        check_batches(runner, 1000, longest=90, most_tokens=24)


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
