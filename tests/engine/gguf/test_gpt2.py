"""What the keys of GPT-2's files mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from engine.architecture.config import load_model_config
from engine.architecture.errors import ConfigError
from engine.gguf.weights import GgufWeights
from engine.model.gpt2 import parameter_shapes
from tests.engine.driving import Engine
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds
from tests.engine.gguf.directories import file_directory
from tests.engine.plugin.families import save_family
from tests.engine.plugin.test_tensors import difference

KIND = "gpt2"
# What published files do not have.
MORE = ("attention__head_count_kv", "attention__key_length", "attention__value_length")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_kinds(tmp_path_factory, [KIND])[KIND]


def test_the_configuration_is_the_originals(original: Path, tmp_path: Path) -> None:
    found = file_config(original, tmp_path, **dict.fromkeys((*MORE, "rope__freq_base")))
    others = [f"{part}_pdrop" for part in ("attn", "embd", "resid")]
    others += [f"summary_{each}" for each in ("activation", "first_dropout", "proj_to_labels")]
    others += ["summary_type", "summary_use_proj", "n_inner", "reorder_and_upcast_attn"]
    others += ["add_cross_attention", "scale_attn_by_inverse_layer_idx", "scale_attn_weights"]
    assert_same_configuration(original, found, *others)
    assert found["n_inner"] == 256
    assert found["tie_word_embeddings"]


def test_logits_are_those_of_transformers(tmp_path: Path) -> None:
    oracle = save_family(KIND, tmp_path / "original")
    directory = file_directory(tmp_path / "original", tmp_path, "F32")
    assert difference(Engine(directory, cpu_path="torch", model_impl="native"), oracle) < 1e-4


def test_blocks_are_dequantized_and_transposed(original: Path, tmp_path: Path) -> None:
    directory = file_directory(original, tmp_path, "Q8_0")
    config = load_model_config(directory)
    name = "transformer.h.1.mlp.c_fc.weight"
    with GgufWeights(
        directory / "model.gguf",
        parameter_shapes(config),
        head_dim=config.head_dim,
        dtype=torch.float32,
        device=torch.device("cpu"),
        progress=lambda done, total: None,
    ) as weights:
        found = weights.tensor(name)
        assert weights.grouped(name) is None
        assert weights.blocks(name) is None
    expected = load_file(original / "model.safetensors")[name]
    assert found.shape == expected.shape == (64, 256)
    assert (found - expected).abs().max() < 0.01 * expected.abs().max()


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"attention__head_count_kv": 2}, "head_count_kv is [0-9]+; only 4 is"),
        ({"attention__layer_norm_epsilon": None}, "has no gpt2.attention.layer_norm_epsilon"),
        ({"rope__scaling__factor": 2.0}, "scaling.type 'linear' is not supported"),
        ({"attention__causal": False}, "attention.causal false is not supported"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, original: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(original, tmp_path, **keys)
