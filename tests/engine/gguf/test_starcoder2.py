"""What the keys of StarCoder2's files mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.architecture.errors import ConfigError
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds

KINDS = ["starcoder2#files"]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_kinds(tmp_path_factory, KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_is_the_originals(
    kind: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    found = file_config(originals[kind], tmp_path)
    assert_same_configuration(originals[kind], found, "embedding_dropout", "residual_dropout")


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"attention__layer_norm_epsilon": None}, "has no starcoder2.attention.layer_norm_epsilon"),
        ({"attention__sliding_window": 0}, "sliding_window must be an integer from 1"),
        ({"rope__scaling__factor": 2.0}, "scaling.type 'linear' is not supported"),
        ({"expert_count": 8}, "mixtures of experts of .*'starcoder2'"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(originals[KINDS[0]], tmp_path, **keys)


def test_a_window_that_the_file_states_counts(originals: dict[str, Path], tmp_path: Path) -> None:
    found = file_config(originals[KINDS[0]], tmp_path, attention__sliding_window=64)
    assert found["sliding_window"] == 64
