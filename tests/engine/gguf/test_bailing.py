"""What the keys of Ling 2.0's files mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.architecture.errors import ConfigError
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds
from tests.engine.gguf.file_names import WRITTEN_AS

KIND = "glm4_moe#bailing"  # the same model under another name


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_kinds(tmp_path_factory, [KIND])[KIND]


def test_the_configuration_is_the_originals(original: Path, tmp_path: Path) -> None:
    published = {"rope__scaling__type": "none"}
    found = file_config(original, tmp_path, **published)
    assert_same_configuration(original, found, WRITTEN_AS, "num_nextn_predict_layers")
    assert found["use_qk_norm"]
    assert found["rope_parameters"]["partial_rotary_factor"] == 0.5


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"expert_shared_feed_forward_length": 96}, "feed_forward_length is [0-9]+; only 32 is"),
        ({"expert_gating_func": 1}, "expert_gating_func is [0-9]+; only 2 is"),
        ({"expert_group_count": 3}, "3 must divide 8 experts into groups of two or more"),
        ({"rope__dimension_count": 5}, "dimension_count must be an even number"),
        ({"expert_shared_count": None}, "has no bailingmoe2.expert_shared_count"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, original: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(original, tmp_path, **keys)
