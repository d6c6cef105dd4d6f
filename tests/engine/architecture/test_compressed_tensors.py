"""Schemes of compressed-tensors: by group, format and target."""

from __future__ import annotations

from typing import Any

import pytest

from engine.architecture.errors import ConfigError
from engine.architecture.fields import ConfigFields
from engine.architecture.quantization import quantized_format
from engine.architecture.schemes import (
    BY_ROW,
    WHOLE,
    Float4,
    Float8,
    Grid,
    IntegerCodes,
    QuantizedFormat,
    Scheme,
)

INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
INT8 = {"num_bits": 8, "type": "int", "strategy": "channel", "group_size": None}
FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "tensor"}
FLOAT4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}


def read(form: str = "pack-quantized", group: Any = None, **more: Any) -> QuantizedFormat:
    scheme = {"targets": ["Linear"], "weights": INT4} if group is None else group
    values = {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": scheme},
        **more,
    }
    return quantized_format(ConfigFields("config.json: quantization_config", values))


@pytest.mark.parametrize(
    ("form", "weights", "scheme", "description"),
    [
        ("pack-quantized", INT4, IntegerCodes(4, True, Grid(1, 32), False), "int4, groups of 32"),
        (
            "pack-quantized",
            {**INT4, "symmetric": False},
            IntegerCodes(4, True, Grid(1, 32), True),
            "int4, groups of 32",
        ),
        (
            "int-quantized",
            INT8,
            IntegerCodes(8, False, BY_ROW, False),
            "int8, a scale for each output",
        ),
        ("naive-quantized", INT8, IntegerCodes(8, False, BY_ROW, False), None),
        ("float-quantized", FLOAT8, Float8((WHOLE,)), "fp8, one scale"),
        ("naive-quantized", FLOAT8, Float8((WHOLE,)), None),
        (
            "float-quantized",
            {**FLOAT8, "strategy": "block", "block_structure": [128, 128]},
            Float8((Grid(128, 128),)),
            "fp8, blocks of 128x128",
        ),
        (
            "nvfp4-pack-quantized",
            FLOAT4,
            Float4(16, whole_scale="weight_global_scale", divides=True),
            "nvfp4",
        ),
        ("dense", INT4, None, "floats"),
    ],
)
def test_a_format_is_read(
    form: str, weights: dict[str, Any], scheme: Scheme | None, description: str | None
) -> None:
    found = read(form, {"targets": ["Linear"], "weights": weights})
    assert found.scheme_of("any.module") == scheme
    if description is not None:
        assert found.description == f"compressed-tensors, {description}"


def test_a_name_is_before_a_pattern_and_a_pattern_before_a_class() -> None:
    found = read(
        "mixed-precision",
        config_groups={
            "a": {"targets": ["Linear"], "weights": INT4, "format": "pack-quantized"},
            "b": {"targets": ["re:.*down_proj$"], "weights": INT8, "format": "int-quantized"},
            "c": {"targets": ["m.0.down_proj"], "weights": FLOAT8, "format": "float-quantized"},
        },
    )
    assert found.scheme_of("m.0.down_proj") == Float8((WHOLE,))
    assert found.scheme_of("m.1.down_proj") == IntegerCodes(8, False, BY_ROW, False)
    assert found.scheme_of("m.1.up_proj") == IntegerCodes(4, True, Grid(1, 32), False)
    assert found.description.startswith("compressed-tensors, int4, groups of 32 and int8, a scale")


def test_inputs_of_8_bits_are_accepted() -> None:
    inputs = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
    group = {"targets": ["Linear"], "weights": INT8, "input_activations": inputs}
    assert read("int-quantized", group).scheme_of("m") == IntegerCodes(8, False, BY_ROW, False)


def test_only_keys_and_values_may_be_quantized() -> None:
    found = read("naive-quantized", config_groups={}, kv_cache_scheme={"num_bits": 8})
    assert found.is_floats
    assert found.description == "compressed-tensors, floats"
    assert not read().is_floats


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config: sparse weights"),
        ({"transform_config": {"config_groups": {"a": {}}}}, "transform_config: transformed"),
        ({"sparsity_config": "none"}, "sparsity_config must be an object"),
        ({"config_groups": None}, "config_groups must be an object of schemes, it is missing"),
        ({"config_groups": {"a": None}}, "a must be an object"),
        ({"config_groups": {"a": []}}, "a must be an object"),
        ({"form": "marlin-24"}, "format must be one of"),
        ({"group": {"weights": INT4}}, "targets"),
        ({"group": {"weights": INT4, "targets": [3]}}, "targets"),
        ({"group": {"weights": INT4, "targets": ["re:(.*)*"]}}, "the pattern '(.*)*'"),
        ({"group": {"weights": INT4, "targets": ["a"] * 5000}}, "at most 4096"),
        ({"group": {"weights": {**INT4, "num_bits": 3}, "targets": ["Linear"]}}, "num_bits"),
        ({"group": {"weights": {**INT4, "type": "complex"}, "targets": ["Linear"]}}, "type"),
        ({"group": {"weights": {**INT4, "type": "float"}, "targets": ["Linear"]}}, "type"),
        ({"group": {"weights": {**INT4, "group_size": -7}, "targets": ["Linear"]}}, "group_size"),
        ({"group": {"weights": {**INT4, "strategy": "token"}, "targets": ["Linear"]}}, "strategy"),
        ({"group": {"weights": {**INT4, "strategy": "block"}, "targets": ["Linear"]}}, "strategy"),
        ({"group": {"weights": {**INT4, "symmetric": 0}, "targets": ["Linear"]}}, "symmetric"),
        (
            {
                "group": {
                    "weights": {**INT4, "symmetric": False, "strategy": "tensor"},
                    "targets": ["Linear"],
                }
            },
            "strategy must be channel or group",
        ),
        (
            {
                "group": {
                    "weights": INT4,
                    "targets": ["Linear"],
                    "input_activations": {"num_bits": 4, "type": "int"},
                }
            },
            "input_activations: num_bits",
        ),
        (
            {"group": {"weights": INT4, "targets": ["Linear"], "output_activations": {"a": 1}}},
            "output_activations",
        ),
        (
            {
                "form": "nvfp4-pack-quantized",
                "group": {"weights": {**FLOAT4, "group_size": 32}, "targets": ["Linear"]},
            },
            "group_size must be 16",
        ),
    ],
)
def test_what_is_not_read_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(**changes)
    assert named in str(refused.value)
    assert len(str(refused.value)) < 400
