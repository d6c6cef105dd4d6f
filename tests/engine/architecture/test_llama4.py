"""What Llama 4's config.json says of single layers means what transformers takes it to mean, and is
computed so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, Llama4ForCausalLM, Llama4TextConfig

from engine.architecture.config import ModelConfig, load_model_config
from engine.architecture.errors import ConfigError
from engine.architecture.features import (
    AttentionChunk,
    AttentionWindow,
    Experts,
    Feature,
    QueryScaling,
)
from engine.cpu.llama import compiled_pass_fits
from engine.gpu.availability import kernels_fit
from engine.messages import SamplingParams
from engine.model.llama import query_factors
from engine.sharding.shard import Shard
from tests.engine.driving import Engine, load_runner
from tests.engine.plugin.families import prompt, save_family

LAYERS = 12
GIVEN: dict[str, Any] = {
    "architectures": ["Llama4ForCausalLM"],
    "model_type": "llama4_text",
    "vocab_size": 100,
    "hidden_size": 512,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
}
TYPES = ["chunked_attention", "full_attention"] * 6
# As in meta-llama/Llama-4-Scout-17B-16E-Instruct and Llama-4-Maverick-17B-128E-Instruct.
FIRST_RELEASE: dict[str, Any] = {
    "attention_bias": False,
    "attention_chunk_size": 8192,
    "attention_dropout": 0.0,
    "attn_scale": 0.1,
    "attn_temperature_tuning": 4,
    "bos_token_id": 200000,
    "cache_implementation": "hybrid",
    "eos_token_id": [200001, 200007, 200008],
    "floor_scale": 8192,
    "for_llm_compressor": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 5120,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "model_type": "llama4_text",
    "no_rope_layers": [],
    "num_attention_heads": 40,
    "num_experts_per_tok": 1,
    "num_hidden_layers": 48,
    "num_key_value_heads": 8,
    "output_router_logits": False,
    "pad_token_id": 200018,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "router_aux_loss_coef": 0.001,
    "router_jitter_noise": 0.0,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 202048,
    "_attn_implementation_autoset": True,
}
SCOUT = FIRST_RELEASE | {
    "interleave_moe_layer_step": 1,
    "max_position_embeddings": 10485760,
    "num_local_experts": 16,
    "rope_scaling": {
        "factor": 16.0,
        "high_freq_factor": 1.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "use_qk_norm": True,
}
MAVERICK = FIRST_RELEASE | {
    "interleave_moe_layer_step": 2,
    "max_position_embeddings": 1048576,
    "moe_layers": list(range(1, 48, 2)),
    "no_rope_layers": [1, 1, 1, 0] * 12,
    "num_local_experts": 128,
    "rope_scaling": None,
    "use_qk_norm": False,
}
# As in facebook/MobileLLM-R1, except for the layers' types.
MOBILE = {
    "layer_types": ["chunked_attention"] * LAYERS,
    "attn_temperature_tuning": False,
    "attn_logit_softcapping": None,
    "hidden_activation": "silu",
    "interleave_moe_layer_step": 0,
    "moe_layers": [],
    "no_rope_layers": [1] * 22,
    "num_experts_per_tok": 0,
    "num_local_experts": 0,
    "query_pre_attn_scalar": 256,
    "rope_local_base_freq": 10000.0,
    "sliding_window": 512,
    "tie_word_embeddings": True,
}


def load(directory: Path, **values: Any) -> ModelConfig:
    (directory / "config.json").write_text(json.dumps(GIVEN | values))
    return load_model_config(directory)


def whole(directory: Path, text: dict[str, Any]) -> ModelConfig:
    """That of a checkpoint that also reads images."""
    values = {
        "architectures": ["Llama4ForConditionalGeneration"],
        "model_type": "llama4",
        "boi_token_index": 200080,
        "image_token_index": 200092,
        "text_config": text,
        "torch_dtype": "bfloat16",
        "vision_config": {"model_type": "llama4_vision_model"},
    }
    (directory / "config.json").write_text(json.dumps(values))
    return load_model_config(directory)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"no_rope_layers": []},
        {"no_rope_layers": [1, 0, 0] * 4, "attn_scale": 0.3, "floor_scale": 100},
        {"no_rope_layers": [1] * 22, "layer_types": TYPES},
        {"no_rope_layer_interval": 3, "interleave_moe_layer_step": 2},
        {"layer_types": TYPES, "attention_chunk_size": 50},
        {"layer_types": ["full_attention"] * LAYERS},
        {"attention_chunk_size": None},
        {"moe_layers": [0, 5, 99], "num_experts_per_tok": 2, "num_local_experts": 8},
        {"moe_layers": []},
        {"attn_temperature_tuning": False, "use_qk_norm": False},
        {"intermediate_size_mlp": 200, "attention_bias": True, "tie_word_embeddings": True},
        MOBILE,
    ],
)
def test_layers_are_those_of_transformers(values: dict[str, Any], tmp_path: Path) -> None:
    ours = load(tmp_path, **values)
    theirs = AutoConfig.from_pretrained(tmp_path)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(theirs)
    chunk = AttentionChunk(theirs.attention_chunk_size) if theirs.attention_chunk_size else None
    scaled = []
    for number, layer in enumerate(model.model.layers):
        attention = layer.self_attn
        is_chunked = theirs.layer_types[number] == "chunked_attention"
        assert ours.windows[number] == (chunk if is_chunked else None)
        rope = ours.ropes[number]
        assert (rope is not None) == bool(attention.use_rope)
        if rope is not None:
            assert rope.theta == theirs.rope_parameters["rope_theta"]
            assert ours.rotated_norms == hasattr(attention, "qk_norm")
        scaled.append(attention.attn_temperature_tuning and not attention.use_rope)
        assert ours.has_experts(number) == layer.is_moe_layer
        feed = layer.feed_forward
        if layer.is_moe_layer:
            assert ours.experts is not None
            assert ours.experts.inner == feed.experts.expert_dim
            assert ours.experts.inner == feed.shared_expert.up_proj.out_features
            assert (ours.experts.count, ours.experts.top_k) == (feed.num_experts, feed.top_k)
        else:
            assert ours.intermediate_size == feed.up_proj.out_features
        assert ours.qkv_bias == (attention.q_proj.bias is not None)
        assert ours.output_bias == (attention.o_proj.bias is not None)
    assert (ours.query_scaling is not None) == any(scaled)
    if ours.query_scaling is not None:
        expected = QueryScaling(theirs.attn_scale, theirs.floor_scale, 1, is_unrotated=True)
        assert ours.query_scaling == expected
    assert (ours.num_heads, ours.num_kv_heads) == (
        *(theirs.num_attention_heads, theirs.num_key_value_heads),
    )
    assert (ours.head_dim, ours.norm_eps) == (theirs.head_dim, theirs.rms_norm_eps)
    assert ours.max_position_embeddings == theirs.max_position_embeddings
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert all(scale == model.model.layers[0].self_attn.scaling for scale in ours.attention_scales)


def test_scout_and_maverick_are_read(tmp_path: Path) -> None:
    scout = whole(tmp_path, SCOUT)
    chunk = AttentionChunk(8192)
    windows: tuple[AttentionWindow, ...] = (chunk, chunk, chunk, None) * 12
    assert scout.windows == windows
    assert [rope is None for rope in scout.ropes] == [window is None for window in windows]
    assert scout.experts == Experts(
        16, 1, 8192, False, (True,) * 48, scales_inputs=True, has_shared=True
    )
    assert scout.ropes[0] is not None
    assert (scout.ropes[0].kind, scout.ropes[0].factor) == ("llama3", 16.0)
    assert scout.rotated_norms
    assert scout.query_scaling == QueryScaling(0.1, 8192, 1, is_unrotated=True)
    assert (scout.dtype, scout.eos_token_ids) == ("bfloat16", {200001, 200007, 200008})
    maverick = whole(tmp_path, MAVERICK)
    assert maverick.windows == windows
    assert maverick.experts is not None
    assert maverick.experts.layers == (False, True) * 24
    assert maverick.experts.count == 128
    assert maverick.intermediate_size == 16384
    assert not maverick.rotated_norms
    assert Feature.ROTATED_NORMS not in maverick.features


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"layer_types": ["sliding_attention"] * LAYERS}, "sliding_attention are not supported"),
        ({"layer_types": TYPES, "attention_chunk_size": None}, "chunks of unknown size"),
        ({"attention_chunk_size": 0}, "attention_chunk_size must be an integer from 1"),
        ({"no_rope_layers": [1] * 11}, "no_rope_layers must be 12 zeros and ones"),
        ({"no_rope_layers": [2] * 12}, "no_rope_layers must be 12 zeros and ones"),
        ({"moe_layers": ["1"]}, "moe_layers must be a list of layers"),
        ({"interleave_moe_layer_step": 0}, "interleave_moe_layer_step must be"),
        ({"attn_temperature_tuning": "yes"}, "attn_temperature_tuning must be true, false or"),
        ({"floor_scale": 0}, "floor_scale must be"),
        ({"num_experts_per_tok": 17}, "num_experts_per_tok must be an integer from 1 to 16"),
        ({"router_scale": 2.0}, "this family: router_scale"),
        ({"attn_logit_softcapping": 50.0}, "this family: attn_logit_softcapping"),
    ],
)
def test_what_cannot_be_meant_or_is_not_ours_is_named(
    values: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=reason):
        load(tmp_path, **values)


@pytest.mark.parametrize(
    "values",
    [
        {"use_qk_norm": False, "moe_layers": [], "attention_chunk_size": None},
        {"use_qk_norm": False, "moe_layers": [], "attn_temperature_tuning": False},
        {"moe_layers": [], "attention_chunk_size": None, "attn_temperature_tuning": False},
        {"use_qk_norm": False, "attention_chunk_size": None, "attn_temperature_tuning": False},
    ],
)
def test_each_of_its_features_is_left_to_torch(values: dict[str, Any], tmp_path: Path) -> None:
    config = load(tmp_path, **values)
    assert not compiled_pass_fits(config, 16)
    assert not kernels_fit(config)
    with pytest.raises(ConfigError, match="--tensor-parallel-size 2 does not support a model with"):
        Shard(0, 2).config(config)


def test_query_factors_equal_transformers(tmp_path: Path) -> None:
    config = load(tmp_path, attn_scale=0.3, floor_scale=7)
    found = query_factors(config, 100, torch.device("cpu"))
    assert found is not None
    positions = torch.arange(100)
    expected = torch.log1p(torch.floor((positions.float() + 1.0) / 7)) * 0.3 + 1.0
    torch.testing.assert_close(found, expected)


def test_without_what_sets_it_apart_the_compiled_pass_computes_it(tmp_path: Path) -> None:
    """Pairs that turn are stored side by side."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = Llama4TextConfig(
        vocab_size=199,
        hidden_size=64,
        intermediate_size_mlp=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=128,
        moe_layers=[],
        no_rope_layers=[1, 0, 1],
        attention_chunk_size=None,
        attn_temperature_tuning=False,
        use_qk_norm=False,
        initializer_range=0.2,
        eos_token_id=None,
    )
    oracle = Llama4ForCausalLM(config).eval()
    oracle.save_pretrained(tmp_path)
    assert compiled_pass_fits(load_model_config(tmp_path), 16)
    ids = prompt(60, seed=1)
    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
    with torch.inference_mode():
        logits = oracle(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    expected = torch.log_softmax(logits, dim=-1)[torch.arange(59), ids[1:]]
    for settings in ({}, {"cpu_path": "torch"}):
        [output] = Engine(tmp_path, **settings).generate([ids], params)
        found = torch.tensor([each.logprob for each in output.prompt_logprobs])
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_generate_of_transformers_gives_the_same_text(tmp_path: Path) -> None:
    """Over its own cache, which forgets what is before a chunk."""
    torch.set_num_threads(1)
    oracle = save_family("llama4_text#scout", tmp_path)
    ids = prompt(20, seed=9)
    params = SamplingParams(max_tokens=64, temperature=0.0, ignore_eos=True)
    [output] = Engine(tmp_path, block_size=8, max_num_batched_tokens=9).generate([ids], params)
    inputs = torch.tensor([ids])
    expected: Any = oracle.generate(  # type: ignore[operator]
        inputs,
        attention_mask=torch.ones_like(inputs),
        max_new_tokens=64,
        do_sample=False,
        pad_token_id=0,
    )
    assert ids + output.token_ids == expected[0].tolist()


def test_an_8_bit_cache_and_quantized_weights_are_served(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    save_family("llama4_text#scout", tmp_path)
    params = SamplingParams(max_tokens=4, temperature=0.0)
    for settings in ({"kv_cache_dtype": "fp8"}, {"quantization": "int8"}, {"dtype": "bfloat16"}):
        [output] = Engine(tmp_path, **settings).generate([prompt(40, seed=1)], params)
        assert len(output.token_ids) == 4
    with pytest.raises(Exception, match="--deterministic is not supported for this model"):
        load_runner(tmp_path, deterministic=True)
