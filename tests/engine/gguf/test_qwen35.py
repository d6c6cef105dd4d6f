"""What the keys of Qwen3.5's files mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.architecture.errors import ConfigError
from engine.gguf.families import family_of
from engine.gguf.parts import read_gguf_header
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds
from tests.engine.gguf.making import write_gguf
from tests.engine.gguf.qwen35_files import FUSES_EXPERTS, add_predictor, change_config
from tests.engine.plugin.families import save_family

DENSE, MIXTURE = "qwen3_5_text#heads", "qwen3_5_moe_text#heads"


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_kinds(tmp_path_factory, (DENSE, MIXTURE))


@pytest.mark.parametrize("kind", [DENSE, MIXTURE])
def test_the_configuration_is_the_originals(
    kind: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    assert_same_configuration(originals[kind], file_config(originals[kind], tmp_path))


def test_small_matrices_in_floats_do_not_make_the_model_float32(
    originals: dict[str, Path], tmp_path: Path
) -> None:
    assert file_config(originals[DENSE], tmp_path)["dtype"] == "bfloat16"


def test_every_fourth_layer_attends_to_all_tokens_unless_a_key_says_otherwise(
    originals: dict[str, Path], tmp_path: Path
) -> None:
    found = file_config(originals[DENSE], tmp_path, full_attention_interval=None)
    assert found["layer_types"] == ["linear_attention"] * 3 + ["full_attention"]


def test_layers_that_predict_further_tokens_are_left_out(
    originals: dict[str, Path], tmp_path: Path
) -> None:
    save_family(DENSE, tmp_path / "o")
    add_predictor(tmp_path / "o")
    expected = file_config(originals[DENSE], tmp_path)
    assert file_config(tmp_path / "o", tmp_path) == expected
    assert expected["num_hidden_layers"] == 4


def test_a_mixture_may_say_the_size_of_no_other_feed_forward(
    originals: dict[str, Path], tmp_path: Path
) -> None:
    expected = file_config(originals[MIXTURE], tmp_path)
    assert file_config(originals[MIXTURE], tmp_path, feed_forward_length=96) == expected | {
        "intermediate_size": 96
    }
    found = file_config(originals[MIXTURE], tmp_path, expert_shared_feed_forward_length=None)
    assert found["shared_expert_intermediate_size"] == found["moe_intermediate_size"] == 32


def test_where_gate_and_up_of_experts_are_is_seen_from_the_tensors(tmp_path: Path) -> None:
    save_family(MIXTURE, tmp_path / "o")
    for fuses, stored in ((False, "ffn_gate_exps"), (True, "ffn_gate_up_exps")):
        change_config(tmp_path / "o", **{FUSES_EXPERTS: fuses})
        path = write_gguf(tmp_path / "o", tmp_path / "t.gguf", tokenizer=False)
        modules = family_of(read_gguf_header(path)).modules
        assert modules.get("mlp.experts.gate_proj", "ffn_gate_exps") == stored


@pytest.mark.parametrize(
    ("kind", "keys", "says"),
    [
        (DENSE, {"ssm__group_count": 0}, "qwen35.ssm.group_count must be an integer from 1"),
        (DENSE, {"ssm__time_step_rank": 0}, "qwen35.ssm.time_step_rank must be an integer from 1"),
        (DENSE, {"ssm__time_step_rank": 5}, "ssm.time_step_rank must be a multiple of 2, not 5"),
        (DENSE, {"ssm__time_step_rank": 1 << 31}, "ssm.time_step_rank must be an integer from 1"),
        (DENSE, {"ssm__inner_size": 97}, "ssm.inner_size must be a multiple of 6, not 97"),
        (DENSE, {"ssm__inner_size": 1 << 40}, "ssm.inner_size must be an integer from 1"),
        (DENSE, {"ssm__state_size": 0}, "ssm.state_size must be an integer from 1"),
        (DENSE, {"ssm__state_size": None}, "has no qwen35.ssm.state_size"),
        (DENSE, {"ssm__conv_kernel": 1 << 20}, "ssm.conv_kernel must be an integer from 2 to 64"),
        (DENSE, {"full_attention_interval": 0}, "full_attention_interval must be an integer from"),
        (DENSE, {"nextn_predict_layers": 4}, "nextn_predict_layers must be an integer from 0 to 3"),
        (DENSE, {"rope__dimension_count": 5}, "rope.dimension_count must be an even number, not 5"),
        (DENSE, {"rope__dimension_count": 18}, "rope.dimension_count must be an integer from 2 to"),
        (DENSE, {"feed_forward_length": None}, "has no qwen35.feed_forward_length"),
        (MIXTURE, {"expert_count": 1 << 16}, "expert_count must be an integer from 1 to 4096"),
        (MIXTURE, {"expert_used_count": 9}, "expert_used_count must be an integer from 1 to 8"),
        (MIXTURE, {"expert_feed_forward_length": 0}, "expert_feed_forward_length must be an int"),
    ],
)
def test_keys_that_cannot_be_served_are_named(
    kind: str, keys: dict[str, Any], says: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(originals[kind], tmp_path, **keys)
