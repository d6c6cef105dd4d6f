"""What the keys of Hunyuan's files mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.architecture.errors import ConfigError
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds

KINDS = ["hunyuan_v1_moe#files", "hunyuan_v1_dense#files"]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_kinds(tmp_path_factory, KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_is_the_originals(
    kind: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    found = file_config(originals[kind], tmp_path)
    assert_same_configuration(
        originals[kind], found, "eod_token_id", "sep_token_id", "pretraining_tp"
    )


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"expert_gating_func": 2}, "expert_gating_func is [0-9]+; only 1 is"),
        ({"expert_weights_norm": False}, "expert_weights_norm false is not supported"),
        ({"expert_weights_scale": 2.5}, "expert_weights_scale is not supported"),
        ({"expert_group_count": 2}, "expert_group_count is [0-9]+; only 1 is"),
        ({"expert_used_count": 9}, "expert_used_count must be an integer from 1 to 8"),
        ({"expert_feed_forward_length": 64}, "expert_feed_forward_length is [0-9]+; only 96 is"),
        (
            {"expert_shared_feed_forward_length": 64},
            "expert_shared_feed_forward_length is [0-9]+; only 96 is",
        ),
        ({"rope__scaling__type": "yarn"}, "'yarn' is not supported"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(originals[KINDS[0]], tmp_path, **keys)


def test_a_dense_model_has_no_experts(originals: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mixtures of experts of .*'hunyuan-dense'"):
        file_config(originals[KINDS[1]], tmp_path, expert_count=8)
