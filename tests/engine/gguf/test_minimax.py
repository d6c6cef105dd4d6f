"""What the keys of MiniMax-M2's files mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.architecture.errors import ConfigError
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds

KINDS = ["minimax_m2#files"]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_kinds(tmp_path_factory, KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_is_the_originals(
    kind: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    found = file_config(originals[kind], tmp_path)
    assert_same_configuration(originals[kind], found, "router_jitter_noise")


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"expert_gating_func": 1}, "expert_gating_func is [0-9]+; only 2 is"),
        ({"expert_weights_norm": False}, "expert_weights_norm false is not supported"),
        ({"expert_weights_scale": 2.5}, "expert_weights_scale is not supported"),
        ({"expert_group_count": 2}, "expert_group_count is [0-9]+; only 1 is"),
        ({"expert_used_count": 9}, "expert_used_count must be an integer from 1 to 8"),
        ({"expert_feed_forward_length": 64}, "expert_feed_forward_length is [0-9]+; only 96 is"),
        ({"rope__dimension_count": 7}, "rope.dimension_count must be an even number"),
        ({"rope__dimension_count": 18}, "rope.dimension_count must be an integer from 2 to 16"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(originals[KINDS[0]], tmp_path, **keys)
