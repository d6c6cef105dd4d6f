"""What the keys of Apertus's files mean in config.json, and as parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.architecture.errors import ConfigError
from engine.gguf.apertus import activation_parameters
from engine.gguf.config import config_json
from engine.gguf.families import keys_of
from engine.gguf.parts import read_gguf_header
from tests.engine.gguf.configurations import assert_same_configuration, file_config
from tests.engine.gguf.making import write_gguf
from tests.engine.plugin.families import save_family


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("made")
    save_family("apertus#files", directory)
    return directory


def test_the_configuration_is_the_originals(original: Path, tmp_path: Path) -> None:
    found = file_config(original, tmp_path)
    # Files have its factor rounded.
    rope = found["rope_parameters"]
    assert rope["factor"] == pytest.approx(8.0)
    found["rope_parameters"] = rope | {"factor": 8.0}
    assert_same_configuration(original, found)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"attention__scale": 0.5}, "attention.scale is not supported"),
        ({"rope__freq_base": 1e4}, "rope_freqs.weight is not the scaling of a Llama 3 model"),
        ({"rope__dimension_count": 8}, "rope.dimension_count must be the head size"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, original: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(original, tmp_path, **keys)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("xielu.alpha_n", None, "has no xielu.alpha_n"),
        ("xielu.alpha_p", np.ones(3, np.float32), "or an array of 4 of them, not an array of 3"),
        ("xielu.beta", float("nan"), "xielu.beta must be a number from -1000 to 1000, not nan"),
        ("xielu.eps", np.full(4, np.inf, np.float32), "xielu.eps must be a number from -1000"),
    ],
)
def test_wrong_activations_are_refused(
    key: str, value: Any, says: str, original: Path, tmp_path: Path
) -> None:
    path = write_gguf(original, tmp_path / "t.gguf", tokenizer=False)
    header = read_gguf_header(path)
    header.keys.pop(key)
    if value is not None:
        header.keys[key] = value
    with pytest.raises(ConfigError, match=says):
        config_json(header)


def test_one_activation_may_be_that_of_all_layers(original: Path, tmp_path: Path) -> None:
    header = read_gguf_header(write_gguf(original, tmp_path / "t.gguf", tokenizer=False))
    header.keys["xielu.alpha_p"] = 0.25
    found = activation_parameters(keys_of(header))
    assert [found[f"model.layers.{n}.mlp.act_fn.alpha_p"] for n in range(4)] == [0.25] * 4
    assert len(found) == 16
