"""What a GGUF file says of a model is what the original's config.json says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from engine.architecture.config import ModelConfig, load_model_config
from engine.architecture.errors import ConfigError, UnsupportedError
from engine.architecture.rotary import inverse_frequencies
from engine.gguf.config import config_json
from engine.gguf.parts import read_gguf_header
from engine.gguf.types import TYPES
from tests.engine.gguf.family_files import FAMILY_FILES
from tests.engine.gguf.making import write_gguf
from tests.engine.tiny_models import VARIANTS, Variant, save_model

_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def read_back(path: Path, folder: Path) -> ModelConfig:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config_json(read_gguf_header(path))))
    return load_model_config(folder)


def stored_factors(directory: Path) -> torch.Tensor:
    """What llama.cpp's converter stores for a scaled rotary embedding."""
    rope, head_dim = load_model_config(directory).ropes[0], load_model_config(directory).head_dim
    assert rope is not None
    plain = inverse_frequencies(dataclasses.replace(rope, kind="default"), head_dim)
    return plain / inverse_frequencies(rope, head_dim)


@pytest.mark.parametrize(
    "name",
    [
        *("llama", "llama_tied", "llama_biases", "llama_multi_query", "llama_linear_rope"),
        *("llama_yarn", "mistral", "qwen2", "qwen3", "qwen3_tied_biases"),
    ],
)
def test_the_configuration_is_the_originals(name: str, tmp_path: Path) -> None:
    original = tmp_path / "original"
    save_model(VARIANTS[name], original)
    path = write_gguf(original, tmp_path / "tiny.gguf", tokenizer=False)
    expected = load_model_config(original)
    if expected.family == "mistral":  # GGUF has one name for both
        expected = dataclasses.replace(expected, family="llama", architecture="LlamaForCausalLM")
    assert read_back(path, tmp_path / "made") == expected


@pytest.mark.parametrize("name", FAMILY_FILES)
def test_the_configuration_of_other_families_is_the_originals(name: str, tmp_path: Path) -> None:
    save_model(FAMILY_FILES[name], tmp_path / "original")
    path = write_gguf(tmp_path / "original", tmp_path / "tiny.gguf", tokenizer=False)
    assert read_back(path, tmp_path / "made") == load_model_config(tmp_path / "original")


def test_the_scaling_of_llama_3_is_found_from_its_factors(tmp_path: Path) -> None:
    original = tmp_path / "original"
    settings = {"rope_parameters": _LLAMA3, "head_dim": 64}
    save_model(Variant("llama", settings), original)
    path = write_gguf(
        original,
        tmp_path / "tiny.gguf",
        tokenizer=False,
        rope_factors=stored_factors(original),
    )
    assert read_back(path, tmp_path / "made") == load_model_config(original)


@pytest.mark.parametrize("wrong", [3.0, float("nan"), 0.0])
def test_other_factors_are_refused(wrong: float, tmp_path: Path) -> None:
    original = tmp_path / "original"
    save_model(Variant("llama", {"rope_parameters": _LLAMA3, "head_dim": 64}), original)
    factors = stored_factors(original)
    factors[-3] = wrong
    path = write_gguf(original, tmp_path / "t.gguf", tokenizer=False, rope_factors=factors)
    with pytest.raises(UnsupportedError, match="is not the scaling of a Llama 3 model"):
        config_json(read_gguf_header(path))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("F32", "float32"), ("BF16", "bfloat16"), ("F16", "float16"), ("Q8_0", "float16")],
)
def test_the_dtype_is_one_that_loses_nothing(kind: str, dtype: str, tmp_path: Path) -> None:
    save_model(VARIANTS["llama"], tmp_path / "original")
    # Q8_0 needs rows of a multiple of 32, which those of the down projection (80) are not.
    kinds = {
        f"model.layers.{layer}.mlp.down_proj.weight": "F16" if kind == "Q8_0" else kind
        for layer in range(3)
    }
    path = write_gguf(
        tmp_path / "original", tmp_path / "t.gguf", kind, kinds=kinds, tokenizer=False
    )
    assert config_json(read_gguf_header(path))["dtype"] == dtype


@pytest.mark.parametrize(("name", "kind"), [("gemma3", "Q8_0"), ("gemma4", "Q4_0")])
def test_the_dtype_holds_large_activations(name: str, kind: str, tmp_path: Path) -> None:
    save_model(FAMILY_FILES[name], tmp_path / "original")
    path = write_gguf(tmp_path / "original", tmp_path / "t.gguf", kind, tokenizer=False)
    assert config_json(read_gguf_header(path))["dtype"] == "bfloat16"


def test_tokens_known_by_their_texts_end_an_answer_too(tmp_path: Path) -> None:
    save_model(FAMILY_FILES["phi3"], tmp_path / "original")
    path = write_gguf(tmp_path / "original", tmp_path / "t.gguf", tokenizer=False)
    header = read_gguf_header(path)
    header.keys["tokenizer.ggml.eos_token_id"] = 2
    header.keys["tokenizer.ggml.tokens"] = ["a", "<|end|>", "<|endoftext|>", "<|call|>"]
    assert config_json(header)["eos_token_id"] == [2, 1]


@pytest.mark.parametrize("key", ["rope.scaling.factor", "rope.scale_linear"])
def test_a_factor_without_a_type_is_linear(key: str, tmp_path: Path) -> None:
    save_model(FAMILY_FILES["qwen3"], tmp_path / "original")
    path = write_gguf(tmp_path / "original", tmp_path / "t.gguf", tokenizer=False)
    header = read_gguf_header(path)
    header.keys[f"qwen3.{key}"] = 8.0
    assert config_json(header)["rope_scaling"] == {"rope_type": "linear", "factor": 8.0}


def test_stated_factors_and_stored_ones_are_not_combined(tmp_path: Path) -> None:
    save_model(Variant("llama", {"rope_parameters": _LLAMA3, "head_dim": 64}), tmp_path / "o")
    factors = stored_factors(tmp_path / "o")
    path = write_gguf(tmp_path / "o", tmp_path / "t.gguf", tokenizer=False, rope_factors=factors)
    header = read_gguf_header(path)
    header.keys["llama.rope.scaling.factor"] = 2.0
    with pytest.raises(UnsupportedError, match=r"is not supported with rope_freqs\.weight"):
        config_json(header)


def test_layers_that_do_not_exist_are_not_believed(tmp_path: Path) -> None:
    save_model(FAMILY_FILES["qwen3"], tmp_path / "original")
    path = write_gguf(tmp_path / "original", tmp_path / "t.gguf", tokenizer=False)
    header = read_gguf_header(path)
    header.keys["qwen3.block_count"] = 4096
    with pytest.raises(ConfigError, match="block_count is 4096, and the file has tensors of 3 lay"):
        config_json(header)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("rope.scaling.attn_factor", 1.5, "is not supported; it must be 1"),
        ("attention.causal", False, "false is not supported; it must be true"),
        ("rope.scaling.type", "longrope", "'longrope' is not supported"),
        ("feed_forward_length", np.array([96, 64, 96]), "must be the same in all layers"),
        ("attention.value_length", 16, "must be the head size, 32"),
    ],
)
def test_what_other_architectures_have_is_refused(
    key: str, value: object, says: str, tmp_path: Path
) -> None:
    save_model(FAMILY_FILES["ministral3"], tmp_path / "original")
    path = write_gguf(tmp_path / "original", tmp_path / "t.gguf", tokenizer=False)
    header = read_gguf_header(path)
    header.keys[f"mistral3.{key}"] = value  # type: ignore[assignment]
    with pytest.raises(UnsupportedError, match=says):
        config_json(header)


@pytest.mark.parametrize(
    ("architecture", "keys", "says"),
    [
        ("mamba", {}, "general.architecture 'mamba' is not supported as GGUF; supported: llama"),
        (
            "qwen3",
            {"qwen3.expert_count": 8},
            "mixtures of experts of general.architecture 'qwen3' are not supported",
        ),
        ("llama", {}, "has no matrix token_embd.weight"),
        ("llama", {"matrix": 1}, "has no llama.attention.head_count"),
        (
            "llama",
            {"matrix": 1, "llama.attention.head_count": 0},
            "llama.attention.head_count must be an integer from 1 to 4096, not 0",
        ),
        (
            "llama",
            {
                "matrix": 1,
                "llama.attention.head_count": 2,
                "llama.embedding_length": 32,
                "llama.rope.dimension_count": 8,
            },
            "llama.rope.dimension_count must be the head size, 16",
        ),
    ],
)
def test_what_is_not_served_is_refused(
    architecture: str, keys: dict[str, int], says: str, tmp_path: Path
) -> None:
    writer = gguf.GGUFWriter(tmp_path / "t.gguf", architecture)
    for key, value in keys.items():
        if key == "matrix":
            writer.add_tensor("token_embd.weight", torch.zeros(8, 32).numpy())
        else:
            writer.add_uint32(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ConfigError, match=says):
        config_json(read_gguf_header(tmp_path / "t.gguf"))


def test_types_are_checked_before_any_weight_is_read(tmp_path: Path) -> None:
    save_model(VARIANTS["llama"], tmp_path)
    path = write_gguf(tmp_path, tmp_path / "t.gguf", tokenizer=False)
    header = read_gguf_header(path)
    name = "blk.1.ffn_down.weight"
    header.tensors[name] = header.tensors[name]._replace(type=TYPES[16])
    with pytest.raises(UnsupportedError, match=r"has type IQ2_XXS.*supported: F32, F16"):
        config_json(header)
