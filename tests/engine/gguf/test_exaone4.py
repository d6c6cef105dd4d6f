"""What the keys of EXAONE 4's files mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.architecture.errors import ConfigError
from engine.gguf.exaone4 import exaone4
from engine.gguf.families import keys_of
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds
from tests.engine.gguf.making import write_header

KINDS = ["exaone4#files", "exaone4#full"]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_kinds(tmp_path_factory, KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_is_the_originals(
    kind: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    found = file_config(originals[kind], tmp_path)
    assert_same_configuration(originals[kind], found, "sliding_window_pattern")


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"attention__sliding_window": -1}, "sliding_window must be an integer from 1"),
        ({"attention__sliding_window_pattern": np.array([True, False])}, "an array of 4 booleans"),
        ({"rope__freq_base_swa": 5.0}, "freq_base_swa must be that of all layers"),
        ({"rope__scaling__factor": 2.0}, "scaling.type is not supported with rope_freqs"),
        ({"rope__freq_base": 2e6}, "rope_freqs.weight is not the scaling of a Llama 3 model"),
        ({"nextn_predict_layers": 4}, "nextn_predict_layers must be an integer from 0 to 3"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(originals[KINDS[0]], tmp_path, **keys)


def test_other_scalings_are_refused(originals: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"scaling.type 'linear' is not supported"):
        file_config(originals[KINDS[1]], tmp_path, rope__scaling__factor=2.0)


def test_only_the_largest_model_must_have_a_window(tmp_path: Path) -> None:
    common = {"num_hidden_layers": 64, "rope_theta": 1e6, "rope_scaling": None}
    keys = keys_of(write_header(tmp_path, "exaone4"))
    with pytest.raises(ConfigError, match=r"has no exaone4\.attention\.sliding_window"):
        exaone4(keys, common)
    found = exaone4(keys, common | {"num_hidden_layers": 30})
    assert found["layer_types"] == ["full_attention"] * 30
    keys = keys_of(write_header(tmp_path, "exaone4", {"attention.sliding_window": 4096}))
    kinds = exaone4(keys, common)["layer_types"]
    assert kinds == [*["sliding_attention"] * 3, "full_attention"] * 16
