"""What the keys of DeepSeek's files mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.architecture.errors import ConfigError
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds
from tests.engine.gguf.deepseek_files import JOINT_KV_B
from tests.engine.gguf.qwen35_files import change_config
from tests.engine.plugin.families import save_family

V2 = ["deepseek_v2#files", "deepseek_v2#lite"]
YARN = "deepseek_v3#files"
KINDS = [*V2, YARN, "deepseek_v3#queries", "glm4_moe_lite#files"]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_kinds(tmp_path_factory, KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_is_the_originals(
    kind: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    found = file_config(originals[kind], tmp_path)
    others = {"num_nextn_predict_layers", "pretraining_tp", "qk_head_dim", "mlp_layer_types"}
    if kind.startswith("glm"):  # the same model under another name
        others |= {"architectures", "model_type", "rope_parameters"}
    if kind in (YARN, *V2):  # those that are the usual ones
        others.add("rope_parameters")
        rope = found["rope_parameters"]
        scale = 0.707 if kind in V2 else 1.0
        assert rope["mscale"] == rope["mscale_all_dim"] == pytest.approx(scale)
        assert rope["factor"] == 8.0
    assert_same_configuration(originals[kind], found, *others)


def test_older_files_have_the_sizes_of_heads_under_other_names(tmp_path: Path) -> None:
    save_family(YARN, tmp_path / "o")
    # Nor do they say anything of groups; llama.cpp then chooses without.
    no_groups = {"expert_group_count": None, "expert_group_used_count": None}
    expected = file_config(tmp_path / "o", tmp_path, **no_groups)
    change_config(tmp_path / "o", **{JOINT_KV_B: True})
    assert file_config(tmp_path / "o", tmp_path) == expected


@pytest.mark.parametrize("kind", V2)
def test_files_that_do_not_name_the_router_have_a_softmax(
    kind: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    expected = file_config(originals[kind], tmp_path)
    assert file_config(originals[kind], tmp_path, expert_gating_func=None) == expected
    assert file_config(originals[kind], tmp_path, expert_gating_func=0) == expected
    assert expected["model_type"] == "deepseek_v2"


def test_older_files_of_v2_choose_experts_without_groups(
    originals: dict[str, Path], tmp_path: Path
) -> None:
    no_groups = {"expert_group_count": None, "expert_group_used_count": None}
    found = file_config(originals["deepseek_v2#files"], tmp_path, **no_groups)
    assert found["topk_method"] == "greedy"
    assert found["routed_scaling_factor"] == 16.0


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"expert_gating_func": 3}, "is 3, and must be 1 .* or 2"),
        ({"expert_gating_func": 1, "expert_weights_norm": True}, "weights_norm true is not"),
        ({"attention__temperature_scale": 0.5}, "temperature_scale is not supported"),
        ({"expert_group_count": 9}, "expert_group_count must be an integer from 0 to 8"),
        ({"expert_group_count": 3}, "3 must divide 8 experts into groups of two or more"),
        ({"expert_group_count": 8}, "8 must divide 8 experts into groups of two or more"),
        ({"expert_used_count": 5}, "expert_used_count is 5, and the used groups have 4"),
        ({"expert_group_used_count": 5}, "expert_group_used_count must be an integer from 0 to 4"),
        ({"attention__key_length_mla": 8}, "key_length_mla must be an integer from 9 to 1024"),
        ({"attention__value_length_mla": None}, "has no deepseek2.attention.value_length_mla"),
        ({"attention__kv_lora_rank": 0}, "kv_lora_rank must be an integer from 1"),
        ({"rope__dimension_count": None}, "has no deepseek2.rope.dimension_count"),
        ({"rope__dimension_count": 3}, "dimension_count must be an even number"),
        ({"rope__freq_base": 1.0}, "freq_base must be a number from 1.001"),
        ({"rope__scaling__type": "linear"}, "'linear' is not supported"),
        ({"rope__scaling__factor": 0.5}, "scaling.factor must be 1 or more"),
        ({"rope__scaling__yarn_log_multiplier": 0.0}, "yarn_log_multiplier must be a number"),
        ({"rope__scaling__yarn_log_multiplier": None}, "has no .*yarn_log_multiplier"),
        ({"expert_count": None}, "has no deepseek2.expert_count"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(originals[YARN], tmp_path, **keys)
