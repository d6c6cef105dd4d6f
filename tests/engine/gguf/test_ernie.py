"""What the keys of Ernie 4.5's files mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.architecture.errors import ConfigError
from tests.engine.driving import Engine
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds
from tests.engine.gguf.directories import file_directory
from tests.engine.plugin.families import save_family
from tests.engine.plugin.test_tensors import difference

KINDS = ["ernie4_5_moe#files", "ernie4_5_moe#own"]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_kinds(tmp_path_factory, KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_is_the_originals(
    kind: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    found = file_config(originals[kind], tmp_path)
    assert_same_configuration(originals[kind], found, "moe_norm_min", "moe_layer_end_index")


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"expert_gating_func": 2}, "expert_gating_func is [0-9]+; only 1 is"),
        ({"expert_weights_norm": False}, "expert_weights_norm false is not supported"),
        ({"expert_weights_scale": 2.5}, "expert_weights_scale is not supported"),
        ({"expert_group_count": 2}, "expert_group_count is [0-9]+; only 1 is"),
        ({"expert_used_count": 9}, "expert_used_count must be an integer from 1 to 8"),
        ({"interleave_moe_layer_step": 2}, "interleave_moe_layer_step is [0-9]+; only 1 is"),
        (
            {"leading_dense_block_count": 5},
            "leading_dense_block_count must be an integer from 0 to 4",
        ),
        ({"expert_shared_feed_forward_length": 40}, "must be a multiple of 32"),
        ({"expert_shared_feed_forward_length": 65 * 32}, "must be an integer from 0 to 2048"),
        ({"rope__scaling__factor": 2.0}, "scaling.type 'linear' is not supported"),
        ({"rope__dimension_count": 8}, "rope.dimension_count must be the head size"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(originals[KINDS[0]], tmp_path, **keys)


@pytest.mark.parametrize("kind", ["ernie4_5", "ernie4_5#tall"])
def test_a_dense_model_is_computed_by_our_code_as_transformers_does(
    kind: str, tmp_path: Path
) -> None:
    oracle = save_family(kind, tmp_path / "original")
    directory = file_directory(tmp_path / "original", tmp_path, "F32")
    found = file_config(tmp_path / "original", tmp_path)
    assert found["architectures"] == ["LlamaForCausalLM"]
    assert found["rope_theta"] == 500_000.0
    assert found["tie_word_embeddings"] is (kind == "ernie4_5")
    assert difference(Engine(directory, cpu_path="torch", model_impl="native"), oracle) < 1e-4


def test_without_a_number_of_dense_layers_all_have_experts(
    originals: dict[str, Path], tmp_path: Path
) -> None:
    found = file_config(originals[KINDS[0]], tmp_path, leading_dense_block_count=None)
    assert found["moe_layer_start_index"] == 0
