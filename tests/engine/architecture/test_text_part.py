"""The language model of a checkpoint that also reads images gives the tokens and logprobs of the
whole checkpoint in transformers; what config.json says of it is understood, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig

from engine.architecture.config import load_model_config
from engine.architecture.errors import ConfigError, UnsupportedError
from engine.architecture.features import QueryScaling
from engine.architecture.fields import ConfigFields
from engine.architecture.text_part import (
    TEXT_PARTS,
    module_names,
    text_fields,
    text_name,
    text_part,
)
from engine.messages import SamplingParams
from tests.engine.driving import Engine, load_runner
from tests.engine.plugin.families import prompt, require_release_with
from tests.engine.plugin.image_text import (
    NATIVE_TEXT,
    PLUGIN_TEXT,
    architecture_of,
    save_gemma3n,
    save_image_text,
    tiny_image_text_config,
)
from tests.engine.plugin.mixing import assert_equals_transformers

ALWAYS_BY_TORCH = NATIVE_TEXT[0]
ALWAYS_BY_PLUGIN = ("qwen3_5:qwen3_5_text", "gemma4:gemma4_text#shared")


@pytest.mark.parametrize("kind", NATIVE_TEXT)
def test_our_own_code_equals_transformers_with_the_whole_checkpoint(
    kind: str, tmp_path: Path
) -> None:
    require_release_with(kind.partition(":")[0])
    torch.set_num_threads(1)
    oracle = save_image_text(kind, tmp_path)
    assert_equals_transformers(tmp_path, oracle, model_impl="native")
    if kind == ALWAYS_BY_TORCH:
        assert_equals_transformers(tmp_path, oracle, model_impl="native", cpu_path="torch")


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in ALWAYS_BY_PLUGIN else pytest.param(kind, marks=pytest.mark.slow)
        for kind in (*PLUGIN_TEXT, ALWAYS_BY_PLUGIN[-1])
    ],
)
def test_transformers_code_over_our_cache_equals_it_too(kind: str, tmp_path: Path) -> None:
    require_release_with(kind.partition(":")[0])
    torch.set_num_threads(1)
    oracle = save_image_text(kind, tmp_path)
    assert_equals_transformers(tmp_path, oracle, model_impl="transformers")
    info = load_runner(tmp_path, load_format="dummy", model_impl="transformers").info
    assert info.implementation == "transformers"
    assert info.architecture == type(oracle).__name__
    assert "image" in info.unserved_inputs


def test_gemma_3n_is_served_by_transformers_code_without_its_encoders(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    oracle = save_gemma3n(tmp_path)
    assert_equals_transformers(tmp_path, oracle)
    info = load_runner(tmp_path, load_format="dummy").info
    assert info.implementation == "transformers"
    assert info.unserved_inputs == ("image", "audio")


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("model_impl", ["native", "transformers"])
@pytest.mark.parametrize("is_said_tied", [True, False])
def test_the_files_say_whether_embeddings_are_the_output_head(
    is_tied: bool, model_impl: str, is_said_tied: bool, tmp_path: Path
) -> None:
    oracle = save_image_text("mistral3:mistral", tmp_path, is_tied=is_tied)
    values = json.loads((tmp_path / "config.json").read_text())
    # What transformers wrote, and a default that holds where a checkpoint says nothing else.
    values["text_config"]["tie_word_embeddings"] = is_tied
    values["tie_word_embeddings"] = is_tied or is_said_tied
    (tmp_path / "config.json").write_text(json.dumps(values))
    [output] = Engine(tmp_path, model_impl=model_impl).generate(
        [prompt(20, seed=1)], SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True)
    )
    ids = prompt(20, seed=1) + output.token_ids
    with torch.inference_mode():
        logits = oracle(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    assert output.token_ids == logits.argmax(-1)[19:-1].tolist()


def written(directory: Path, kind: str, **text: Any) -> Path:
    """A config.json of a ``kind``, whose ``text_config`` has ``text`` as well."""
    values = json.loads(tiny_image_text_config(kind).to_json_string())
    values["architectures"] = [architecture_of(kind)]
    values["text_config"] |= text
    (directory / "config.json").write_text(json.dumps(values))
    return directory


@pytest.mark.parametrize("kind", NATIVE_TEXT)
def test_what_is_not_known_of_a_text_model_is_not_ours(kind: str, tmp_path: Path) -> None:
    require_release_with(kind.partition(":")[0])
    assert load_model_config(written(tmp_path, kind)).text_part is not None
    changed = written(tmp_path, kind, value_residual_multiplier=0.5, unused_flag=False)
    with pytest.raises(
        UnsupportedError, match="not known for this family: value_residual_multiplier"
    ):
        load_model_config(changed)


@pytest.mark.parametrize("whole", [True, False])
def test_a_text_model_that_attends_to_later_tokens_is_refused(whole: bool, tmp_path: Path) -> None:
    changed = written(tmp_path, "qwen3_vl:qwen3_vl_text", is_causal=whole)
    values = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps(values | {"is_causal": not whole}))
    with pytest.raises(ConfigError, match="is_causal is false"):
        load_model_config(changed)


def test_a_text_model_that_nobody_computes_is_refused_before_weights(tmp_path: Path) -> None:
    changed = written(tmp_path, "qwen3_vl:qwen3_vl_text", value_residual_multiplier=0.5)
    with pytest.raises(UnsupportedError, match="not known for this family") as refused:
        load_runner(changed)
    assert "transformers builds no causal language model for qwen3_vl_text" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ({"norm_topk_prob": False}, "norm_topk_prob false is not supported"),
        ({"moe_intermediate_size": 32}, "shapes do not show whether experts are stored transposed"),
        ({"moe_intermediate_size": 64}, "shapes do not show whether experts are stored transposed"),
    ],
)
def test_experts_that_libraries_read_differently_are_not_ours(
    text: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    kind = "qwen3_vl_moe:qwen3_vl_moe_text"
    load_model_config(written(tmp_path, kind, norm_topk_prob=True))
    with pytest.raises(UnsupportedError, match=reason):
        load_model_config(written(tmp_path, kind, **text))


def test_tokens_that_end_a_sequence_are_read_wherever_they_are_named(tmp_path: Path) -> None:
    written(tmp_path, "gemma3:gemma3_text", eos_token_id=1)
    values = json.loads((tmp_path / "config.json").read_text()) | {"eos_token_id": [1, 106]}
    (tmp_path / "config.json").write_text(json.dumps(values))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [50, 106]}')
    assert load_model_config(tmp_path).eos_token_ids == frozenset({1, 50, 106})


def test_gemma_3_is_read_where_it_leaves_out_its_defaults(tmp_path: Path) -> None:
    """As in google/gemma-3-4b-it."""
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    values = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "eos_token_id": [1, 106],
        "torch_dtype": "bfloat16",
        "text_config": text,
        "vision_config": {"model_type": "siglip_vision_model"},
    }
    (tmp_path / "config.json").write_text(json.dumps(values))
    ours, theirs = load_model_config(tmp_path), AutoConfig.from_pretrained(tmp_path).text_config
    assert (ours.vocab_size, ours.num_heads, ours.num_kv_heads, ours.head_dim) == (
        *(theirs.vocab_size, theirs.num_attention_heads, theirs.num_key_value_heads),
        theirs.head_dim,
    )
    assert (ours.dtype, ours.tie_word_embeddings) == ("bfloat16", True)
    assert ours.max_position_embeddings == theirs.max_position_embeddings
    assert [window is None for window in ours.windows] == [
        kind == "full_attention" for kind in theirs.layer_types
    ]
    assert {rope and (rope.theta, rope.kind, rope.factor) for rope in ours.ropes} == {
        (1_000_000.0, "linear", 8.0),
        (10_000.0, "default", 1.0),
    }


def test_a_flat_configuration_is_read(tmp_path: Path) -> None:
    """As in Qwen/Qwen2.5-VL-3B-Instruct."""
    values = {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "attention_dropout": 0.0,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        **{"vision_start_token_id": 151652, "vision_end_token_id": 151653},
        **{"vision_token_id": 151654, "image_token_id": 151655, "video_token_id": 151656},
        "hidden_act": "silu",
        "hidden_size": 2048,
        "initializer_range": 0.02,
        "intermediate_size": 11008,
        "max_position_embeddings": 128000,
        "max_window_layers": 70,
        "model_type": "qwen2_5_vl",
        "num_attention_heads": 16,
        "num_hidden_layers": 36,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.41.2",
        "use_cache": True,
        "use_sliding_window": False,
        "vision_config": {"depth": 32, "model_type": "qwen2_5_vl", "spatial_patch_size": 14},
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "vocab_size": 151936,
    }
    (tmp_path / "config.json").write_text(json.dumps(values))
    config = load_model_config(tmp_path)
    assert (config.architecture, config.family) == (
        "Qwen2_5_VLForConditionalGeneration",
        "qwen2_5_vl_text",
    )
    assert (config.num_layers, config.head_dim, config.dtype) == (36, 128, "bfloat16")
    assert {rope and (rope.theta, rope.kind) for rope in config.ropes} == {(1e6, "default")}
    assert config.tie_word_embeddings
    assert config.eos_token_ids == frozenset({151645})


def test_a_text_config_that_was_made_from_a_flat_configuration_is_read(tmp_path: Path) -> None:
    """transformers 4.52 to 4.57 copied the ids of image tokens into it."""
    ids = {"vision_start_token_id": 2, "vision_end_token_id": 3, "vision_token_id": 4}
    written(tmp_path, "qwen2_5_vl:qwen2_5_vl_text", **ids, image_token_id=None)
    assert load_model_config(tmp_path).family == "qwen2_5_vl_text"


def test_ministral_3_has_its_queries_scaled(tmp_path: Path) -> None:
    config = load_model_config(written(tmp_path, "mistral3:ministral3#short"))
    assert config.query_scaling == QueryScaling(0.3, 16)


def test_without_a_text_config_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["Gemma3ForConditionalGeneration"]}')
    with pytest.raises(ConfigError, match="has no text_config"):
        load_model_config(tmp_path)


def test_a_dtype_of_the_whole_counts_before_that_of_the_text_model() -> None:
    part = TEXT_PARTS["Gemma3ForConditionalGeneration"]

    def dtypes(text: dict[str, Any], **whole: Any) -> tuple[Any, Any]:
        fields = ConfigFields("c", whole | {"text_config": text})
        values = text_fields(fields, part).values
        return values.get("dtype"), values.get("torch_dtype")

    assert dtypes({}, torch_dtype="bfloat16") == (None, "bfloat16")
    assert dtypes({"dtype": "float16"}) == ("float16", None)
    assert dtypes({"dtype": "float32"}, torch_dtype="bfloat16") == (None, "bfloat16")
    assert dtypes({"torch_dtype": "float32"}, dtype="bfloat16") == ("bfloat16", None)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("model.language_model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"),
        ("language_model.model.norm.weight", "model.norm.weight"),
        ("language_model.lm_head.weight", "lm_head.weight"),
        ("lm_head.weight", "lm_head.weight"),
        ("model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"),
    ],
)
def test_tensors_are_named_as_in_a_checkpoint_of_text_alone(name: str, plain: str) -> None:
    assert text_name(name) == plain


@pytest.mark.parametrize(
    ("names", "also"),
    [
        (
            ("model.language_model.layers.0.mlp", "language_model.model.layers.0.mlp"),
            "model.layers.0.mlp",
        ),
        (("language_model.lm_head", "lm_head"), None),
        (("visual.blocks.0.mlp",), None),
    ],
)
def test_rules_may_call_a_module_by_any_of_its_names(
    names: tuple[str, ...], also: str | None
) -> None:
    for name in names:
        assert module_names(name)[0] == name
        assert set(module_names(name)) == {*names, *([also] if also else [])}


@pytest.mark.parametrize(
    ("audio", "inputs"), [({}, ("image", "video", "audio")), (None, ("image", "video"))]
)
def test_what_is_left_out_is_named(audio: Any, inputs: tuple[str, ...]) -> None:
    values = {"architectures": ["Gemma4ForConditionalGeneration"], "audio_config": audio}
    found = text_part(ConfigFields("c", values))
    assert found is not None
    assert found[1].inputs == inputs


def test_a_model_of_text_alone_has_no_such_part() -> None:
    assert text_part(ConfigFields("c", {"architectures": ["LlamaForCausalLM"]})) is None
    assert text_part(ConfigFields("c", {})) is None
