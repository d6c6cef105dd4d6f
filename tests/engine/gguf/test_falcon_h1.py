"""What the keys of Falcon-H1's files mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.architecture.errors import ConfigError
from engine.gguf.falcon_h1 import falcon_h1
from engine.gguf.families import family_of, keys_of
from tests.engine.driving import Engine
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds
from tests.engine.gguf.directories import file_directory
from tests.engine.gguf.making import write_header
from tests.engine.plugin.families import save_family
from tests.engine.plugin.test_tensors import difference

KIND = "falcon_h1#files"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_kinds(tmp_path_factory, [KIND])[KIND]


def test_the_configuration_is_the_originals(original: Path, tmp_path: Path) -> None:
    unused = ("mamba_expand", "mamba_norm_before_gate", "mamba_chunk_size", "num_logits_to_keep")
    assert_same_configuration(original, file_config(original, tmp_path), *unused, "time_step_limit")


def test_the_multipliers_are_those_of_the_weights(tmp_path: Path) -> None:
    oracle = save_family("falcon_h1#multipliers", tmp_path / "original")
    directory = file_directory(tmp_path / "original", tmp_path, "F32")
    assert difference(Engine(directory, cpu_path="torch"), oracle) < 1e-4
    assert file_config(tmp_path / "original", tmp_path)["mlp_multipliers"] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"ssm__inner_size": 60}, "ssm.inner_size must be a multiple of 8"),
        ({"ssm__group_count": None}, "has no falcon-h1.ssm.group_count"),
        ({"ssm__state_size": 4096}, "blk.0.ssm_in.weight has 200 rows, and must have 16520"),
        ({"attention__scale": 0.5}, "attention.scale is not supported"),
        ({"rope__scaling__factor": 2.0}, "scaling.type 'linear' is not supported"),
        ({"expert_count": 8}, "mixtures of experts of .*'falcon-h1'"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, original: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(original, tmp_path, **keys)


def test_a_norm_of_the_mamba_layers_is_refused(tmp_path: Path) -> None:
    norm = {"blk.0.ssm_norm.weight": np.ones((2, 32), np.float32)}
    header = write_header(tmp_path, "falcon-h1", {}, norm)
    assert family_of(header).settings is falcon_h1
    with pytest.raises(ConfigError, match=r"blk\.0\.ssm_norm\.weight is not supported"):
        falcon_h1(keys_of(header), {})
