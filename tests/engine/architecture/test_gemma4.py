"""What Gemma 4's config.json says of single layers means what transformers takes it to mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine.architecture.config import ModelConfig, load_model_config
from engine.architecture.errors import ConfigError
from engine.architecture.features import Experts, LayerInputs
from engine.architecture.rope import RopeConfig
from tests.engine.plugin.families import require_release_with

LAYERS = 12
GIVEN: dict[str, Any] = {
    "architectures": ["Gemma4ForCausalLM"],
    "model_type": "gemma4_text",
    "vocab_size": 100,
    "hidden_size": 512,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 32,
}
# As on the hub, where config.json has no per_layer_config.
GLOBAL = {"global_head_dim": 64, "head_dim": 32, "num_global_key_value_heads": 2}
OF_LAYERS = {"per_layer_config": {"3": {"head_dim": 8}, "5": {"num_key_value_heads": 16}}}


UNIFIED = {
    "architectures": ["Gemma4UnifiedForCausalLM"],
    "model_type": "gemma4_unified_text",
}


def load(directory: Path, **values: Any) -> ModelConfig:
    (directory / "config.json").write_text(json.dumps(GIVEN | values))
    return load_model_config(directory)


def layers_of_transformers(values: dict[str, Any]) -> Any:
    """What single layers set is left out: transformers builds only layers that are the same for
    each type."""
    given = {name: value for name, value in (GIVEN | values).items() if name != "per_layer_config"}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**given))
    return model.base_model.layers


@pytest.mark.parametrize(
    "values",
    [
        {},
        GLOBAL,
        GLOBAL | {"attention_k_eq_v": True},
        OF_LAYERS,
        OF_LAYERS | GLOBAL | {"attention_k_eq_v": True},
        {"layer_types": ["sliding_attention", "full_attention"] * 5 + ["sliding_attention"] * 2},
        {"num_kv_shared_layers": 5, "use_double_wide_mlp": True},
        {"num_kv_shared_layers": 0, "use_double_wide_mlp": True},
        UNIFIED,
        UNIFIED | GLOBAL | {"attention_k_eq_v": True, "num_kv_shared_layers": 5},
        {"hidden_size_per_layer_input": 0, "final_logit_softcapping": 30.0, "sliding_window": 99},
    ],
)
def test_layers_have_the_sizes_that_transformers_gives_them(
    values: dict[str, Any], tmp_path: Path
) -> None:
    require_release_with(values.get("model_type", "gemma4_text"))
    ours = load(tmp_path, **values)
    theirs = AutoConfig.from_pretrained(tmp_path)
    own = [theirs.per_layer_config[layer] for layer in range(LAYERS)]
    types = theirs.layer_types
    built = layers_of_transformers(values)
    shares = [layer.self_attn.is_kv_shared_layer for layer in built]
    assert [each.head_dim for each in ours.own_sizes] == [each.head_dim for each in own]
    assert [each.num_kv_heads for each in ours.own_sizes] == [
        each.num_key_value_heads for each in own
    ]
    assert [each.keys_of is not None for each in ours.own_sizes] == shares
    for layer, each in enumerate(ours.own_sizes):
        if each.keys_of is not None:
            assert built[each.keys_of].self_attn.store_full_length_kv
            assert types[each.keys_of] == types[layer]
        assert each.intermediate_size == built[layer].mlp.up_proj.out_features
        is_full = types[layer] == "full_attention"
        has_keys = each.keys_of is None
        assert each.value_is_key == (theirs.attention_k_eq_v and is_full and has_keys)
        assert ours.windows[layer] == (None if is_full else theirs.sliding_window)
        rope = ours.ropes[layer]
        assert rope is not None
        assert rope.theta == theirs.rope_parameters[types[layer]]["rope_theta"]
        assert rope.kind == theirs.rope_parameters[types[layer]]["rope_type"]
    sources = [each.keys_of for each in ours.own_sizes]
    with_keys = [layer for layer, source in enumerate(sources) if source is None]
    assert len(ours.kv_layers) == len(with_keys)
    assert [with_keys[number] for number in ours.kv_numbers] == [
        layer if source is None else source for layer, source in enumerate(sources)
    ]
    assert ours.logit_cap == theirs.final_logit_softcapping
    size = getattr(theirs, "hidden_size_per_layer_input", 0)
    expected = LayerInputs(size, theirs.vocab_size_per_layer_input) if size else None
    assert ours.max_position_embeddings == theirs.max_position_embeddings
    assert ours.layer_inputs == expected


def test_experts_are_in_parallel_with_a_feed_forward_in_every_layer(tmp_path: Path) -> None:
    given = {"num_experts": 8, "top_k_experts": 3, "moe_intermediate_size": 16}
    assert load(tmp_path, **given).experts is None
    ours = load(tmp_path, enable_moe_block=True, **given)
    assert ours.experts == Experts(8, 3, 16, True, (True,) * LAYERS, is_parallel=True)
    assert ours.has_parallel_experts(3)


def test_without_rope_parameters_a_quarter_of_a_full_layer_s_pairs_turns(tmp_path: Path) -> None:
    ropes = load(tmp_path).ropes
    assert ropes[0] == RopeConfig(theta=10_000.0)
    assert ropes[5] == RopeConfig(theta=1_000_000.0, kind="proportional", turning=0.25)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"use_bidirectional_attention": "all"}, "supported for images only"),
        ({"num_kv_shared_layers": 8}, "leaves no layer of some type"),
        ({"num_kv_shared_layers": 13}, "num_kv_shared_layers must be an integer from 0 to 12"),
        ({"per_layer_config": {"0": {"sliding_window": 3}}}, "sliding_window of a single layer"),
        ({"per_layer_config": {"0": {"head_dim": 3}}}, "head_dim must be even"),
        ({"per_layer_config": {"0": {"num_key_value_heads": 3}}}, "a divisor of its 32 heads"),
        (
            {"num_kv_shared_layers": 1, "per_layer_config": {"11": {"head_dim": 64}}},
            "heads of other sizes than those whose keys and values they share",
        ),
        ({"vocab_size_per_layer_input": 99}, "a vocab_size_per_layer_input of 99"),
        ({"rope_parameters": {"rope_type": "default"}}, "for each type of layers"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}, "sliding_attention": {}}},
            "rope type 'yarn'",
        ),
        (
            {"rope_parameters": {"full_attention": {}, "sliding_attention": None}},
            "sliding_attention has no settings",
        ),
        ({"sliding_window": None}, "a sliding window of unknown size"),
        ({"enable_moe_block": True}, "moe_intermediate_size must be"),
        (UNIFIED | {"enable_moe_block": True}, "this family: enable_moe_block"),
        ({"attn_logit_softcapping": 50.0}, "this family: attn_logit_softcapping"),
    ],
)
def test_what_cannot_be_meant_or_is_not_ours_is_named(
    values: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=reason):
        load(tmp_path, **values)
