"""Rotary settings are read from every place that config.json may have them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from transformers import AutoConfig

from engine.architecture.errors import UnsupportedError
from engine.architecture.fields import ConfigFields
from engine.architecture.rope import RopeConfig, read_rope, scaled_positions
from tests.engine.architecture.rope_settings import POSITIONS, SETTINGS


def test_yarn_without_a_factor_takes_it_from_the_lengths() -> None:
    fields = ConfigFields("test", {"rope_parameters": SETTINGS["yarn without a factor"]})
    assert read_rope(fields, max_position_embeddings=POSITIONS).factor == 4.0


def test_settings_under_both_names_must_agree() -> None:
    both: dict[str, Any] = {
        "rope_parameters": SETTINGS["yarn"],
        "rope_scaling": dict(SETTINGS["yarn"]),
    }
    alone = ConfigFields("test", {"rope_parameters": SETTINGS["yarn"]})
    assert read_rope(ConfigFields("test", both), POSITIONS) == read_rope(alone, POSITIONS)
    both["rope_scaling"]["factor"] = 32.0
    with pytest.raises(UnsupportedError, match="both rope_parameters and rope_scaling"):
        read_rope(ConfigFields("test", both), POSITIONS)


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("kind", ["yarn", "llama3"])
@pytest.mark.parametrize("outside", [{}, {"original_max_position_embeddings": 256}])
def test_the_original_positions_are_those_that_transformers_takes(
    model_type: str, kind: str, outside: dict[str, Any]
) -> None:
    values = {"rope_parameters": SETTINGS[kind], **outside}
    theirs = AutoConfig.for_model(model_type, **{**values, "rope_parameters": {**SETTINGS[kind]}})
    theirs.standardize_rope_params()  # as models do that compute frequencies
    found = read_rope(ConfigFields("test", values), POSITIONS).original_positions
    assert found == theirs.rope_parameters["original_max_position_embeddings"]
    assert (found == 256) is bool(outside)


@pytest.mark.parametrize(
    ("model_type", "rope", "expected"),
    [
        ("qwen3", RopeConfig(kind="yarn", factor=4.0, original_positions=32768), 131072),
        ("gpt_oss", RopeConfig(kind="yarn", factor=1.5, original_positions=4096), 40960),
        ("llama", RopeConfig(kind="linear", factor=2.5), 102400),
        ("llama", RopeConfig(kind="dynamic", factor=2.0), 81920),
        ("gemma3_text", RopeConfig(kind="linear", factor=8.0), 40960),
        ("llama", RopeConfig(kind="llama3", factor=8.0, original_positions=8192), 40960),
        ("phi3", RopeConfig(kind="longrope", factor=32.0, original_positions=4096), 40960),
        ("llama", RopeConfig(kind="linear", factor=0.5), 40960),
        ("llama", RopeConfig(kind="linear", factor=1e6), 1 << 30),
        ("llama", RopeConfig(kind="linear", factor=math.inf), 1 << 30),
        ("llama", RopeConfig(), 40960),
    ],
)
def test_scaling_adds_positions_where_the_configuration_does_not_count_them(
    model_type: str, rope: RopeConfig, expected: int
) -> None:
    assert scaled_positions(model_type, [RopeConfig(), rope], 40960) == expected


def test_a_model_without_rotary_embeddings_has_its_positions() -> None:
    assert scaled_positions("gpt2", [], 1024) == 1024
