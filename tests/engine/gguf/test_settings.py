"""What the keys of single architectures mean in config.json."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.gguf.config import config_json
from engine.gguf.families import FAMILIES, family_of, keys_of
from engine.gguf.parts import read_gguf_header
from tests.engine.gguf.configurations import assert_same_configuration, file_config
from tests.engine.gguf.family_files import FAMILY_FILES
from tests.engine.gguf.making import write_gguf, write_header
from tests.engine.plugin.families import save_family
from tests.engine.tiny_models import save_model

COMMON = {
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "hidden_size": 64,
    "head_dim": 16,
    "rope_theta": 1e4,
    "rope_scaling": None,
    "max_position_embeddings": 512,
}


@pytest.mark.parametrize(
    ("pattern", "full"),
    [(None, [5]), (4, [3, 7]), (1, [*range(8)]), (0, []), ([True] * 7 + [False], [7])],
)
def test_which_layers_have_a_window(
    pattern: int | list[bool] | None, full: list[int], tmp_path: Path
) -> None:
    keys: dict[str, int | list[bool]] = {"attention.sliding_window": 512}
    if pattern is not None:
        keys["attention.sliding_window_pattern"] = pattern
    made = keys_of(write_header(tmp_path, "gemma3", keys))
    fields = FAMILIES["gemma3"].settings(made, COMMON)
    types = fields["layer_types"]
    assert [layer for layer in range(8) if types[layer] == "full_attention"] == full
    assert fields["sliding_window"] == 512


def test_a_gemma_without_a_window_attends_to_everything(tmp_path: Path) -> None:
    fields = FAMILIES["gemma3"].settings(keys_of(write_header(tmp_path, "gemma3")), COMMON)
    assert fields["layer_types"] == ["full_attention"] * 8


@pytest.mark.parametrize(
    ("architecture", "layers", "scale"),
    [("gemma3", 8, 32), ("gemma3", 62, 64 / 4), ("gemma2", 62, 32), ("gemma2", 46, 64 / 4)],
)
def test_the_27b_models_scale_scores_by_hidden_size_per_head(
    architecture: str, layers: int, scale: float, tmp_path: Path
) -> None:
    common = COMMON | {"num_hidden_layers": layers, "head_dim": 32}
    keys = keys_of(write_header(tmp_path, architecture, {"attention.sliding_window": 64}))
    fields = FAMILIES[architecture].settings(keys, common)
    assert fields["query_pre_attn_scalar"] == scale


GPT_OSS = {
    "attention.sliding_window": 128,
    "expert_count": 32,
    "expert_used_count": 4,
    "expert_feed_forward_length": 2880,
}


def test_gpt_oss_has_windows_in_turn_and_does_not_round_yarns_ramp(tmp_path: Path) -> None:
    keys = keys_of(write_header(tmp_path, "gpt-oss", GPT_OSS))
    yarn = {"rope_type": "yarn", "factor": 32.0}
    fields = FAMILIES["gpt-oss"].settings(keys, COMMON | {"rope_scaling": yarn})
    assert fields["layer_types"] == ["sliding_attention", "full_attention"] * 4
    assert fields["rope_parameters"] == yarn | {"rope_theta": 1e4, "truncate": False}
    assert fields["num_local_experts"] == 32


@pytest.mark.parametrize(
    ("architecture", "keys", "says"),
    [
        ("gemma3", {"final_logit_softcapping": 30.0}, "gemma3.final_logit_softcapping is not"),
        (
            "gemma3",
            {"attention.sliding_window": 9, "attention.sliding_window_pattern": [True, False]},
            "gemma3.attention.sliding_window_pattern must be an array of 8 booleans, not an array",
        ),
        ("mistral3", {"attention.temperature_scale": 0.1}, "mistral3 without YaRN"),
        (
            "gpt-oss",
            GPT_OSS | {"expert_count": 4097},
            "expert_count must be an integer from 1 to 4",
        ),
        ("gpt-oss", GPT_OSS | {"expert_used_count": 33}, "expert_used_count must be an integer"),
        ("qwen3moe", {}, "has no qwen3moe.expert_count"),
        ("qwen3moe", {"expert_count": 5000}, "expert_count must be an integer from 1 to 4096"),
        ("granite", {"attention.scale": 0.0}, "granite.attention.scale must be a number from"),
        ("granite", {"rope.scaling.finetuned": False}, "no rotary embeddings.* is not supported"),
        ("gpt-oss", GPT_OSS | {"rope.freq_base_swa": 5.0}, "must be that of all layers, 10000"),
    ],
)
def test_keys_that_cannot_be_served_are_named(
    architecture: str, keys: dict[str, float], says: str, tmp_path: Path
) -> None:
    header = write_header(tmp_path, architecture, keys)
    with pytest.raises(ConfigError, match=says):
        family_of(header).settings(keys_of(header), COMMON)


def test_the_experts_of_all_layers_are_bounded(tmp_path: Path) -> None:
    keys = keys_of(write_header(tmp_path, "gpt-oss", GPT_OSS))
    with pytest.raises(ConfigError, match="expert_count must be an integer from 1 to 31, not 32"):
        FAMILIES["gpt-oss"].settings(keys, COMMON | {"num_hidden_layers": 4096 + 1})


def test_routers_have_as_many_experts_as_the_file_says(tmp_path: Path) -> None:
    router = {"blk.0.ffn_gate_inp.weight": np.zeros((31, 8), np.float32)}
    keys = keys_of(write_header(tmp_path, "gpt-oss", GPT_OSS, router))
    with pytest.raises(ConfigError, match=r"expert_count is 32, and blk\.0\.ffn_gate_inp.* has 31"):
        FAMILIES["gpt-oss"].settings(keys, COMMON)


@pytest.mark.parametrize("temperature", [None, 0.1])
def test_mistrals_yarn_has_a_second_temperature(temperature: float | None, tmp_path: Path) -> None:
    given = {"rope.scaling.yarn_log_multiplier": 1.0}
    if temperature is not None:
        given["attention.temperature_scale"] = temperature
    header = write_header(tmp_path, "mistral3", given)
    common = COMMON | {"rope_scaling": {"rope_type": "yarn", "factor": 16.0}}
    fields = family_of(header).settings(keys_of(header), common)
    scaling = fields["rope_scaling"] or fields["rope_parameters"]
    assert {"mscale": 1.0, "mscale_all_dim": 1.0, "factor": 16.0}.items() <= scaling.items()


def test_long_rope_without_factors_is_refused(tmp_path: Path) -> None:
    save_model(FAMILY_FILES["phi3"], tmp_path / "original")
    path = write_gguf(tmp_path / "original", tmp_path / "t.gguf", tokenizer=False)
    header = read_gguf_header(path)
    header.keys["phi3.rope.scaling.type"] = "longrope"
    with pytest.raises(ConfigError, match=r"has no rope_factors_long\.weight"):
        config_json(header)
    header.keys["phi3.rope.scaling.type"] = "yarn"
    with pytest.raises(
        UnsupportedError, match=r"phi3\.rope\.scaling\.type 'yarn' is not supported"
    ):
        config_json(header)


def test_other_temperatures_of_long_rope_are_refused(tmp_path: Path) -> None:
    save_model(FAMILY_FILES["phi3_long"], tmp_path / "original")
    path = write_gguf(tmp_path / "original", tmp_path / "t.gguf", tokenizer=False)
    header = read_gguf_header(path)
    header.keys["phi3.rope.scaling.attn_factor"] = 1.5
    with pytest.raises(UnsupportedError, match=r"attn_factor 1.5 is not supported; LongRoPE's"):
        config_json(header)


@pytest.mark.parametrize("kind", ["qwen2_moe", "seed_oss"])
def test_the_configuration_is_the_originals(kind: str, tmp_path: Path) -> None:
    save_family(kind, tmp_path / "o")
    # Those of training, and of windows that are not used.
    others = ("pretraining_tp", "residual_dropout", "sliding_window", "use_sliding_window")
    more = ("max_window_layers", "layer_types", "decoder_sparse_step", "mlp_only_layers")
    assert_same_configuration(tmp_path / "o", file_config(tmp_path / "o", tmp_path), *others, *more)
