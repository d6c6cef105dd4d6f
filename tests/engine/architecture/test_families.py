"""Each family that our code computes gives the tokens and logprobs of transformers, and those of
its code over our KV cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.architecture.config import load_model_config
from engine.architecture.errors import UnsupportedError
from engine.architecture.families import DECODER_FAMILIES
from engine.architecture.names import ARCHITECTURES
from engine.messages import SamplingParams
from tests.engine.driving import Engine, load_runner
from tests.engine.plugin.families import (
    NATIVE,
    ONLY_NATIVE,
    prompt,
    require_release_with,
    save_family,
    tiny_config,
)
from tests.engine.plugin.mixing import assert_equals_transformers

WAYS: dict[str, dict[str, Any]] = {"compiled": {}, "torch": {"cpu_path": "torch"}}
ALWAYS_BY_TORCH = ("gemma3_text#linear",)
ALWAYS_LONG = ("phi3#longrope", "gemma3_text#linear")
LONG = 256


def family_of(kind: str) -> str:
    return kind.partition("#")[0]


def sometimes(kind: str, always: tuple[str, ...]) -> Any:
    return kind if kind in always else pytest.param(kind, marks=pytest.mark.slow)


@pytest.mark.parametrize("kind", NATIVE)
def test_mixed_steps_equal_transformers(kind: str, tmp_path: Path) -> None:
    require_release_with(kind)
    torch.set_num_threads(1)
    oracle = save_family(kind, tmp_path)
    assert_equals_transformers(tmp_path, oracle, model_impl="native")


@pytest.mark.parametrize("kind", [sometimes(kind, ALWAYS_BY_TORCH) for kind in NATIVE])
def test_mixed_steps_by_torch_equal_transformers(kind: str, tmp_path: Path) -> None:
    require_release_with(kind)
    torch.set_num_threads(1)
    oracle = save_family(kind, tmp_path)
    assert_equals_transformers(tmp_path, oracle, model_impl="native", cpu_path="torch")


@pytest.mark.parametrize(
    "kind", [sometimes(kind, ALWAYS_LONG) for kind in NATIVE if family_of(kind) not in ONLY_NATIVE]
)
def test_long_answers_are_those_of_transformers_code_over_our_cache(
    kind: str, tmp_path: Path
) -> None:
    require_release_with(kind)
    torch.set_num_threads(1)
    save_family(kind, tmp_path, positions=LONG + 64)
    params = SamplingParams(max_tokens=LONG, temperature=0.0, ignore_eos=True)
    prompts = [prompt(30, seed=1), prompt(7, seed=2)]
    answers = [
        [output.token_ids for output in Engine(tmp_path, model_impl=name).generate(prompts, params)]
        for name in ("native", "transformers")
    ]
    assert [len(answer) for answer in answers[0]] == [LONG, LONG]
    assert answers[0] == answers[1]


def config_of(kind: str, directory: Path, **changes: Any) -> Path:
    values = json.loads(tiny_config(kind).to_json_string())
    values["architectures"] = [
        next(name for name, family in ARCHITECTURES.items() if family == values["model_type"])
    ]
    (directory / "config.json").write_text(json.dumps(values | changes))
    return directory


@pytest.mark.parametrize("kind", NATIVE)
def test_our_own_code_is_chosen_unless_config_json_says_more_than_we_know(
    kind: str, tmp_path: Path
) -> None:
    require_release_with(kind)
    known = config_of(kind, tmp_path, is_causal=True)
    assert load_runner(known, load_format="dummy").info.implementation == "native"
    changed = config_of(kind, tmp_path, value_residual_multiplier=0.5, unused_flag=False)
    with pytest.raises(
        UnsupportedError, match="not known for this family: value_residual_multiplier"
    ):
        load_model_config(changed)
    if (refusal := ONLY_NATIVE.get(family_of(kind))) is not None:
        with pytest.raises(UnsupportedError, match=refusal):
            load_runner(changed, load_format="dummy")
        return
    assert load_runner(changed, load_format="dummy").info.implementation == "transformers"


def test_every_architecture_has_a_row() -> None:
    alone = {name for name in DECODER_FAMILIES if "_vl_" not in name}
    assert set(ARCHITECTURES.values()) == {*alone, "gpt2"}


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("gemma3_text#linear", {"use_bidirectional_attention": True}, "use_bidirectional"),
        ("gemma3_text#linear", {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ("smollm3", {"use_sliding_window": True, "sliding_window": 9}, "sliding_window"),
        ("smollm3", {"layer_types": ["chunked_attention"] * 4}, "chunked_attention"),
        ("phi3#partial", {"lm_head_bias": True}, "lm_head_bias"),
        ("ministral3#short", {"layer_types": ["full_attention"] * 4}, "layer_types"),
    ],
)
def test_what_our_code_does_not_compute_is_not_ours(
    kind: str, changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        load_model_config(config_of(kind, tmp_path, **changes))
