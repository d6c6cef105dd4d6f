"""What the keys of LFM2's files mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.architecture.errors import ConfigError
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds

MIXTURE = "lfm2_moe"


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_kinds(tmp_path_factory, ("lfm2", MIXTURE))


@pytest.mark.parametrize("kind", ["lfm2", MIXTURE])
def test_the_configuration_is_the_originals(
    kind: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    found = file_config(originals[kind], tmp_path)
    # The file has the size that they give.
    adjusted = ("block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of")
    others = (*adjusted, "intermediate_size") if kind == "lfm2" else ()
    assert_same_configuration(originals[kind], found, *others, "full_attn_idxs")
    assert found["layer_types"] == ["conv", "full_attention"] * 2


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"attention__head_count_kv": None}, "has no .*head_count_kv"),
        (
            {"attention__head_count_kv": np.array([0, 2, 0, 1])},
            "same in all layers where",
        ),
        ({"attention__head_count_kv": np.array([0, 0, 0, 0])}, "must be above 0 in some layer"),
        ({"attention__head_count_kv": np.array([0, 2, 0])}, "or an array of 4 of them"),
        ({"attention__head_count_kv": np.array([0, -2, 0, 2])}, "an integer from 0"),
        ({"shortconv__l_cache": 1}, "shortconv.l_cache must be an integer from 2 to 64"),
        ({"attention__sliding_window": 8}, "sliding_window is [0-9]+; only 0 is"),
        ({"rope__scaling__factor": 2.0}, "scaling.type 'linear' is not supported"),
    ],
)
@pytest.mark.parametrize("kind", ["lfm2", MIXTURE])
def test_errors_name_the_unsupported_key(
    kind: str, keys: dict[str, Any], says: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(originals[kind], tmp_path, **keys)


def test_experts_are_chosen_by_the_sigmoid(originals: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expert_gating_func is [0-9]+; only 2 is"):
        file_config(originals[MIXTURE], tmp_path, expert_gating_func=1)
    with pytest.raises(ConfigError, match=r"expert_group_count is [0-9]+; only 1 is"):
        file_config(originals[MIXTURE], tmp_path, expert_group_count=2)
    with pytest.raises(ConfigError, match=r"mixtures of experts of .*'lfm2'"):
        file_config(originals["lfm2"], tmp_path, expert_count=8)
