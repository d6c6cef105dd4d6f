"""config.json is read as transformers reads it, and refused in one readable sentence otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    AutoConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3Model,
)

from engine.architecture.config import ModelConfig, load_model_config
from engine.architecture.errors import ConfigError
from engine.architecture.names import ARCHITECTURES, BARE_ARCHITECTURES, ENCODERS
from tests.examples import examples

BASE: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
}


def write(directory: Path, name: str = "config.json", **values: Any) -> Path:
    (directory / name).write_text(json.dumps(values))
    return directory


def load(directory: Path, **changes: Any) -> ModelConfig:
    return load_model_config(write(directory, **(BASE | changes)))


def refusal(directory: Path, **changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(directory, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("config_class", "architecture"),
    [
        (LlamaConfig, "LlamaForCausalLM"),
        (MistralConfig, "MistralForCausalLM"),
        (Qwen2Config, "Qwen2ForCausalLM"),
        (Qwen3Config, "Qwen3ForCausalLM"),
    ],
)
def test_what_config_json_leaves_out_means_what_transformers_takes_it_to_mean(
    tmp_path: Path, config_class: type, architecture: str
) -> None:
    given = {
        "architectures": [architecture],
        "model_type": ARCHITECTURES[architecture],
        "vocab_size": 100,
        "hidden_size": 4096,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 32,
    }
    ours = load_model_config(write(tmp_path, **given))
    theirs = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(theirs, config_class)
    assert ours.num_kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or 4096 // 32)
    assert ours.norm_eps == theirs.rms_norm_eps
    assert ours.max_position_embeddings == theirs.max_position_embeddings
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert {rope and rope.theta for rope in ours.ropes} == {theirs.rope_parameters["rope_theta"]}
    window = theirs.sliding_window if architecture == "MistralForCausalLM" else None
    assert ours.windows == (window, window)


def test_null_means_absent(tmp_path: Path) -> None:
    config = load(tmp_path, architectures=["LlamaForCausalLM"], head_dim=None, rope_scaling=None)
    assert config.head_dim == 16


@pytest.mark.parametrize("family", ["Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def test_qwen_uses_a_sliding_window_only_if_configured(tmp_path: Path, family: str) -> None:
    sliding = {"architectures": [family], "sliding_window": 9, "max_window_layers": 3}
    assert load(tmp_path, **sliding).windows == (None,) * 4
    assert load(tmp_path, use_sliding_window=True, **sliding).windows == (
        None,
        None,
        None,
        9,
    )
    types = ["sliding_attention", "full_attention"] * 2
    named = load(tmp_path, use_sliding_window=True, layer_types=types, **sliding)
    assert named.windows == (9, None, 9, None)


def test_end_of_sequence_ids_come_from_both_files(tmp_path: Path) -> None:
    write(tmp_path, "generation_config.json", eos_token_id=[7, 8])
    assert load(tmp_path, eos_token_id=9).eos_token_ids == {7, 8, 9}


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_the_checkpoints_dtype_is_read_under_either_name(tmp_path: Path, key: str) -> None:
    assert load(tmp_path, **{key: "bfloat16"}).dtype == "bfloat16"


@pytest.mark.parametrize("architecture", ARCHITECTURES | BARE_ARCHITECTURES)
def test_a_decoder_whose_tokens_attend_to_later_ones_is_refused(
    tmp_path: Path, architecture: str
) -> None:
    message = refusal(tmp_path, architectures=[architecture], is_causal=False)
    assert "is_causal is false" in message
    assert all(name in message for name in ENCODERS)


@pytest.mark.parametrize("is_causal", [True, False, None])
def test_transformers_attends_to_later_tokens_only_where_is_causal_is_false(
    is_causal: bool | None,
) -> None:
    torch.manual_seed(0)
    sizes = {name: value for name, value in BASE.items() if name != "architectures"}
    model = Qwen3Model(Qwen3Config(**sizes, is_causal=is_causal, pad_token_id=0)).eval()
    with torch.inference_mode():
        alone = model(torch.tensor([[5]])).last_hidden_state[0, 0]
        first = model(torch.tensor([[5, 7]])).last_hidden_state[0, 0]
    assert torch.allclose(alone, first, atol=1e-5) is (is_causal is not False)


def test_an_unsupported_architecture_is_refused_with_the_supported_ones(tmp_path: Path) -> None:
    message = refusal(tmp_path, architectures=["MambaForCausalLM"])
    assert "MambaForCausalLM is not supported" in message
    assert all(name in message for name in (*ARCHITECTURES, *ENCODERS))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"vocab_size": "100"}, "vocab_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"vocab_size": 10**30}, "vocab_size"),
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": 64.5}, "hidden_size"),
        ({"num_attention_heads": 3}, "num_key_value_heads 2"),
        ({"head_dim": 31}, "head_dim"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps"),
        ({"hidden_act": "mish"}, "hidden_act"),
        ({"dtype": "float8_e4m3fn"}, "dtype"),
        ({"eos_token_id": "</s>"}, "eos_token_id"),
        ({"eos_token_id": [1, -1]}, "eos_token_id"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"architectures": "LlamaForCausalLM"}, "architectures"),
        ({"rope_scaling": 4}, "rope_scaling"),
        ({"rope_scaling": {"type": "longrope"}}, "longrope"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2}}, "dynamic"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8}}, "low_freq_factor"),
        ({"rope_parameters": {"rope_type": "linear"}}, "factor"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_theta": 0}, "rope_theta"),
        ({"use_sliding_window": True, "sliding_window": 8, "layer_types": ["a"]}, "layer_types"),
        (
            {
                "use_sliding_window": True,
                "sliding_window": 8,
                "layer_types": ["chunked_attention"] * 4,
            },
            "chunked_attention",
        ),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quant_method"),
    ],
)
def test_a_bad_field_is_named(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    message = refusal(tmp_path, **changes)
    assert named in message
    assert "config.json" in message


@pytest.mark.parametrize("content", ["", "[1]", "{", "[" * 100_000, '"text"', "\x00"])
def test_a_file_that_is_not_a_json_object_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=r"config\.json"):
        load_model_config(tmp_path)


def test_a_missing_directory_and_a_missing_file_are_distinguished(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a directory"):
        load_model_config(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"cannot read .*config\.json"):
        load_model_config(tmp_path)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
rope_junk = st.dictionaries(
    st.sampled_from(
        [
            "rope_type", "type", "factor", "rope_theta", "low_freq_factor", "high_freq_factor",
            "original_max_position_embeddings", "beta_fast", "attention_factor", "mscale",
        ]
    ),
    junk | st.sampled_from(["llama3", "yarn", "linear"]) | st.floats(0.5, 64),
)  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*BASE, "sliding_window", "use_sliding_window", "dtype", "rope_theta"]),
        junk,
        max_size=3,
    ),
    st.none() | rope_junk,
)
def test_no_config_json_causes_anything_but_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any], rope: Any
) -> None:
    directory = tmp_path_factory.mktemp("config")
    try:
        config = load(directory, **changes, rope_scaling=rope)
    except ConfigError:
        return
    assert config.num_heads % config.num_kv_heads == 0
