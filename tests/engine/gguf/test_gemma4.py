"""Gemma 4's files. ``FAMILY_FILES`` has one of each kind, which other tests compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.architecture.errors import ConfigError
from engine.gguf.config import config_json
from engine.gguf.container import GgufHeader
from engine.gguf.gemma4 import gemma4
from engine.gguf.keys import ArchitectureKeys, GgufKeys
from engine.gguf.parts import read_gguf_header
from tests.engine.gguf.family_files import FAMILY_FILES
from tests.engine.gguf.making import write_gguf, write_header
from tests.engine.tiny_models import save_model


def header_of(name: str, folder: Path) -> GgufHeader:
    save_model(FAMILY_FILES[name], folder / "original")
    return read_gguf_header(
        write_gguf(folder / "original", folder / f"{name}.gguf", tokenizer=False)
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gemma4", {"attention_k_eq_v": True, "num_global_key_value_heads": 2}),
        ("gemma4_inputs", {"use_double_wide_mlp": True, "hidden_size_per_layer_input": 32}),
        ("gemma4_experts", {"enable_moe_block": True, "top_k_experts": 3}),
    ],
)
def test_what_sets_a_model_apart_is_found(
    name: str, expected: dict[str, Any], tmp_path: Path
) -> None:
    found = config_json(header_of(name, tmp_path))
    assert expected.items() <= found.items()
    assert found["rope_parameters"]["full_attention"]["partial_rotary_factor"] == 0.25


@pytest.mark.parametrize(
    ("name", "key", "value", "says"),
    [
        ("gemma4", "attention.head_count_kv", np.array([4, 2, 4]), "must be the same in all"),
        ("gemma4", "attention.head_count_kv", np.array([4, 2]), "or an array of 3 of them"),
        ("gemma4_inputs", "attention.head_count_kv", np.array([2, 1, 2, 1]), "may differ by layer"),
        ("gemma4_inputs", "feed_forward_length", np.array([96, 96, 96, 192]), "have twice as much"),
        ("gemma4", "feed_forward_length", np.array([96, 0, 96]), "an integer from 1 to"),
        ("gemma4", "attention.shared_kv_layers", 3, "must be an integer from 0 to 2"),
        ("gemma4_experts", "expert_count", 5000, "must be an integer from 1 to 4096"),
        ("gemma4", "final_logit_softcapping", -1.0, "must be a number from 0.001"),
        ("gemma4", "rope.dimension_count_swa", 16, "must be the head size of such layers, 32"),
        ("gemma4", "rope.scaling.type", "yarn", "'yarn' is not supported"),
        (
            "gemma4",
            "attention.sliding_window_pattern",
            np.array([False, True, True]),
            "must leave the last layer without a window",
        ),
    ],
)
def test_errors_name_the_unsupported_key(
    name: str, key: str, value: Any, says: str, tmp_path: Path
) -> None:
    header = header_of(name, tmp_path)
    header.keys[f"gemma4.{key}"] = value
    with pytest.raises(ConfigError, match=says) as raised:
        config_json(header)
    assert f"gemma4.{key}" in str(raised.value)


def test_a_layer_without_values_among_others_that_have_them_is_named(tmp_path: Path) -> None:
    header = header_of("gemma4_inputs", tmp_path)
    del header.tensors["blk.1.attn_v.weight"]  # of the only layer with full attention that has keys
    assert config_json(header)["attention_k_eq_v"] is True
    header = header_of("gemma4_inputs", tmp_path)
    header.keys["gemma4.attention.shared_kv_layers"] = 0
    header.keys["gemma4.feed_forward_length"] = 96
    header.tensors["blk.3.attn_v.weight"] = header.tensors.pop("blk.1.attn_v.weight")
    assert "attention_k_eq_v" not in config_json(header)


@pytest.mark.parametrize("factors", [[2.0, 1e30], [1e30, 1.0], [1.0, float("nan")]])
def test_rope_factors_other_than_proportional_ones_are_refused(
    factors: list[float], tmp_path: Path
) -> None:
    given = {"attention.sliding_window": 8, "attention.key_length_swa": 8, "feed_forward_length": 8}
    tensors = {"rope_freqs.weight": np.array(factors, np.float32)}
    header = write_header(tmp_path, "gemma4", given, tensors)
    keys = ArchitectureKeys(header, GgufKeys(header), "gemma4")
    common = {
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "head_dim": 4,
        "rope_theta": 1e6,
        "rope_scaling": None,
    }
    with pytest.raises(ConfigError, match=r"rope_freqs\.weight must be ones followed by values"):
        gemma4(keys, common)
