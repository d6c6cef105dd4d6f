"""What the keys of files of Command R and Command A mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.architecture.errors import ConfigError
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds

KINDS = ["cohere", "cohere#norms", "cohere2#files"]
WINDOWS = KINDS[2]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_kinds(tmp_path_factory, KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_is_the_originals(
    kind: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    assert_same_configuration(originals[kind], file_config(originals[kind], tmp_path))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"logit_scale": None}, "has no cohere2.logit_scale"),
        ({"logit_scale": 0.0}, "logit_scale must be a number from"),
        ({"attention__layer_norm_epsilon": None}, "has no cohere2.attention.layer_norm_epsilon"),
        ({"attention__sliding_window": 0}, "sliding_window must be an integer from 1"),
        ({"rope__dimension_count": 8}, "rope.dimension_count must be the head size"),
        ({"rope__scaling__type": "yarn"}, "'yarn' is not supported"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(originals[WINDOWS], tmp_path, **keys)
