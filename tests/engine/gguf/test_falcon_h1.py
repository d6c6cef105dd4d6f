"""What the keys of Falcon-H1's files mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.gguf.falcon_h1 import falcon_h1
from engine.gguf.families import keys_of
from tests.engine.driving import Engine
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds
from tests.engine.gguf.directories import file_directory
from tests.engine.gguf.making import write_header
from tests.engine.plugin.families import save_family
from tests.engine.plugin.test_tensors import difference

KIND = "falcon_h1#files"
KEYS = {
    "ssm.inner_size": 64,
    "ssm.time_step_rank": 8,
    "ssm.group_count": 2,
    "ssm.state_size": 16,
    "ssm.conv_kernel": 4,
}


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
        ({"embedding_multiplier": 5.0}, "embedding_multiplier is not supported; convert the"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, original: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(original, tmp_path, **keys)


def test_a_norm_of_the_mamba_layers_comes_after_the_gate(tmp_path: Path) -> None:
    save_family("falcon_h1#norm", tmp_path / "original")
    found = file_config(tmp_path / "original", tmp_path)
    assert (found["mamba_rms_norm"], found["mamba_norm_before_gate"]) == (True, False)


def test_tied_embeddings_are_refused(tmp_path: Path) -> None:
    save_family("falcon_h1#tied", tmp_path / "original")
    with pytest.raises(UnsupportedError, match=r"has no output\.weight, which Falcon-H1 needs"):
        file_config(tmp_path / "original", tmp_path)


def test_a_layer_without_its_first_matrix_is_refused(tmp_path: Path) -> None:
    rows = {"blk.0.ssm_in.weight": np.ones((200, 64), np.float32)}
    keys = keys_of(write_header(tmp_path, "falcon-h1", KEYS, rows))
    common = {"tie_word_embeddings": False, "num_hidden_layers": 2}
    with pytest.raises(ConfigError, match=r"blk\.1\.ssm_in\.weight is missing$"):
        falcon_h1(keys, common)
