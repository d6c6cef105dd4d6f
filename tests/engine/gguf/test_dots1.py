"""What the keys of dots.llm1's files mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.architecture.errors import ConfigError
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds

KINDS = ["dots1#files"]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_kinds(tmp_path_factory, KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_is_the_originals(
    kind: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    found = file_config(originals[kind], tmp_path)
    assert_same_configuration(originals[kind], found, "max_window_layers")


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"expert_gating_func": 1}, "expert_gating_func is [0-9]+; only 2 is"),
        ({"attention__sliding_window": 8}, "sliding_window is [0-9]+; only 0 is"),
        ({"expert_group_count": 3}, "3 must divide 8 experts into groups of two or more"),
        ({"expert_shared_count": 0}, "expert_shared_count must be an integer from 1 to 64"),
        (
            {"leading_dense_block_count": 5},
            "leading_dense_block_count must be an integer from 0 to 4",
        ),
        ({"rope__scaling__factor": 2.0}, "scaling.type 'linear' is not supported"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(originals[KINDS[0]], tmp_path, **keys)
