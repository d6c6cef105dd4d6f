"""What the keys of Gemma 3n's files mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.architecture.errors import ConfigError
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds

KIND = "gemma3n_text#files"
# What no computation depends on, or the class makes of other fields.
UNUSED = ("altup_coef_clip", "intermediate_size")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_kinds(tmp_path_factory, [KIND])[KIND]


def test_the_configuration_is_the_originals(original: Path, tmp_path: Path) -> None:
    found = file_config(original, tmp_path)
    assert_same_configuration(original, found, *UNUSED)
    assert found["intermediate_size"] == 96
    assert found["activation_sparsity_pattern"] == [0.95, 0.5, 0.0, 0.95]


def test_the_first_files_have_a_float_and_no_cap(original: Path, tmp_path: Path) -> None:
    """Theirs is the cap of all models."""
    expected = file_config(original, tmp_path)
    older = {"attention__shared_kv_layers": 2.0, "final_logit_softcapping": None}
    assert file_config(original, tmp_path, **older) == expected
    assert expected["num_kv_shared_layers"] == 2


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"attention__shared_kv_layers": 1.5}, "layers must be an integer from 0 to 3, not 1.5"),
        ({"attention__shared_kv_layers": 3}, "is 3, but no layer before these has"),
        ({"attention__shared_kv_layers": None}, "has no gemma3n.attention.shared_kv_layers"),
        ({"activation_sparsity_scale": None}, "scale must be an array of 4 numbers, 4 at most"),
        (
            {"activation_sparsity_scale": np.ones(3)},
            "scale must be an array of 4 numbers, 4 at most",
        ),
        (
            {"activation_sparsity_scale": np.array([0.0, 0.0, 0.0, np.nan])},
            "scale must be an array of 4 numbers, 4 at most",
        ),
        ({"altup__active_idx": 1}, "altup.active_idx is [0-9]+; only 0 is"),
        ({"activation_sparsity_scale": np.full(4, 4.5)}, "array of 4 numbers, 4 at most"),
        ({"altup__correct_scale": False}, "correct_scale false is not supported"),
        ({"altup__num_inputs": None}, "has no gemma3n.altup.num_inputs"),
        ({"embedding_length_per_layer_input": 0}, "layer_input must be an integer from 1"),
        ({"attention__sliding_window": None}, "has no gemma3n.attention.sliding_window"),
        ({"rope__scaling__factor": 2.0}, "scaling.type 'linear' is not supported"),
        ({"feed_forward_length": np.array([96, 96, 96, 64])}, "must be the same in all layers"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, original: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(original, tmp_path, **keys)
