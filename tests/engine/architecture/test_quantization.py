"""``quantization_config`` is understood, or refused by the name of a field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.architecture.errors import ConfigError
from engine.architecture.fields import ConfigFields
from engine.architecture.quantization import quantized_format, read_quantization
from engine.architecture.schemes import (
    BY_ROW,
    WHOLE,
    Awq,
    Experts4,
    Float4,
    Float8,
    Gptq,
    Grid,
    QuantizedFormat,
)
from tests.engine.quantized.making import compressed, gptqmodel_fp8

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "GEMM"}
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
KEYS_AND_VALUES = {"quant_method": "modelopt", "quant_algo": None, "kv_cache_quant_algo": "FP8"}


def read(**values: Any) -> QuantizedFormat:
    return quantized_format(ConfigFields("config.json: quantization_config", values))


@pytest.mark.parametrize(
    ("values", "scheme", "description"),
    [
        (GPTQ, Gptq(4, 128, True), "gptq, 4 bits, groups of 128"),
        (
            {**GPTQ, "checkpoint_format": "gptq_v2", "group_size": -1},
            Gptq(4, None, False),
            "gptq v2, 4 bits, a scale for each output",
        ),
        ({**GPTQ, "format": "gptq", "checkpoint_format": "gptq_v2"}, Gptq(4, 128, False), None),
        ({**GPTQ, "format": "gptq_v2", "checkpoint_format": "gptq"}, Gptq(4, 128, True), None),
        ({**GPTQ, "format": "gptq_v2"}, Gptq(4, 128, False), None),
        ({**GPTQ, "bits": 8, "pack_dtype": "int32", "rotation": None}, Gptq(8, 128, True), None),
        ({**GPTQ, "rotation": False}, Gptq(4, 128, True), None),
        (AWQ, Awq(128), "awq, 4 bits, groups of 128"),
        (FP8, Float8((WHOLE, BY_ROW)), "fp8"),
        (
            {**FP8, "weight_block_size": [128, 64]},
            Float8((Grid(128, 64),)),
            "fp8 in blocks of 128x64",
        ),
        (gptqmodel_fp8("row"), Float8((WHOLE, BY_ROW), divides=True), "fp8"),
        (
            gptqmodel_fp8("block", weight_block_size=[128, 64]),
            Float8((Grid(128, 64),), divides=True),
            None,
        ),
        ({"quant_method": "fbgemm_fp8"}, Float8((BY_ROW, WHOLE)), None),
        ({"quant_method": "mxfp4"}, Experts4(), "mxfp4 experts"),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4"},
            Float4(16, codes="weight", whole_scale="weight_scale_2"),
            "nvfp4 (modelopt)",
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, Float8((WHOLE, BY_ROW)), None),
        (
            {"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}},
            Float8((WHOLE, BY_ROW)),
            None,
        ),
        (KEYS_AND_VALUES, None, "modelopt, weights in floats"),
    ],
)
def test_a_format_is_read(values: dict[str, Any], scheme: Any, description: str | None) -> None:
    found = read(**values)
    assert found.scheme_of("model.layers.0.mlp.up_proj") == scheme
    assert description is None or found.description == description


def test_modules_of_gptq_may_differ() -> None:
    found = read(
        **GPTQ,
        dynamic={
            "-:.*attn.*": {},
            r"+:.*\.mlp\.experts\..*": {"bits": 8, "group_size": 32},
            "lm_head": {},
        },
    )
    assert found.description == "gptq, 4 bits, groups of 128, mixed"
    assert found.scheme_of("model.layers.0.self_attn.q_proj") is None
    assert found.scheme_of("model.layers.0.mlp.experts.3.up_proj") == Gptq(8, 32, True)
    assert found.scheme_of("lm_head") == found.scheme_of("other") == Gptq(4, 128, True)


@pytest.mark.parametrize("usual", ["format", "checkpoint_format"])
@pytest.mark.parametrize("own", ["format", "checkpoint_format"])
def test_modules_of_gptq_may_have_the_other_version(usual: str, own: str) -> None:
    found = read(**{**GPTQ, usual: "gptq", "dynamic": {"+:.*mlp.*": {own: "gptq_v2"}}})
    assert found.scheme_of("model.layers.0.mlp.up_proj") == Gptq(4, 128, False)
    assert found.scheme_of("other") == Gptq(4, 128, True)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({}, "quant_method must be a string, it is missing"),
        ({"quant_method": 4}, "quant_method must be a string, not 4"),
        (
            {"quant_method": "bitsandbytes"},
            "quant_method must be one of fp8, fbgemm_fp8, compressed-tensors, awq, gptq, mxfp4, "
            "modelopt, not 'bitsandbytes'",
        ),
        ({"quant_method": "hqq"}, "quant_method"),
        ({**GPTQ, "bits": None}, "bits"),
        ({**GPTQ, "bits": 3}, "bits must be 2, 4 or 8, not 3"),
        ({**GPTQ, "bits": 10**400}, "bits"),
        ({**GPTQ, "bits": "4"}, "bits"),
        ({**GPTQ, "group_size": 0}, "group_size"),
        ({**GPTQ, "group_size": 2**40}, "group_size"),
        ({**GPTQ, "group_size": [128]}, "group_size"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "checkpoint_format must be gptq or gptq_v2"),
        ({**GPTQ, "dynamic": {"mlp": {"format": "marlin"}}}, "mlp: format must be gptq or gptq_v2"),
        ({**GPTQ, "dynamic": {"mlp": {"pack_dtype": "int8"}}}, "mlp: pack_dtype must be int32"),
        ({**GPTQ, "is_marlin_format": True}, "is_marlin_format"),
        ({**GPTQ, "pack_dtype": "int8"}, "pack_dtype"),
        ({**GPTQ, "dynamic": []}, "dynamic"),
        ({**GPTQ, "dynamic": {"+:.*": 4}}, ".*"),
        ({**GPTQ, "dynamic": {"+:.*": {"bits": 3}}}, "bits"),
        ({**GPTQ, "dynamic": {"-:(": {}}}, "is not a pattern"),
        ({**GPTQ, "dynamic": {"-:(a+)+": {}}}, "the pattern '(a+)+' is not supported"),
        ({**GPTQ, "dynamic": {str(n): {} for n in range(5000)}}, "at most 4096"),
        ({**AWQ, "version": "gemv"}, "version must be gemm"),
        ({**AWQ, "version": None, "format": "llm-awq"}, "format must be gemm"),
        ({**AWQ, "bits": 8}, "bits must be 4"),
        ({**AWQ, "zero_point": False}, "zero_point"),
        ({**FP8, "fmt": "e5m2"}, "fmt must be e4m3"),
        ({**gptqmodel_fp8("row"), "format": "float8_e5m2"}, "format must be e4m3"),
        (
            {**gptqmodel_fp8("row"), "checkpoint_format": "float8_e8m0fnu"},
            "checkpoint_format must be e4m3",
        ),
        (
            {**FP8, "weight_scale_semantics": "direct"},
            "weight_scale_semantics must be inverse, not 'direct'",
        ),
        *(
            (
                {**how, "rotation": kind},
                f"rotation must be null (rotated weights are not read), not '{kind}'",
            )
            for how, kind in ((GPTQ, "hadamard"), (AWQ, "random"), (FP8, "hadamard"))
        ),
        ({**FP8, "weight_block_size": [128]}, "weight_block_size"),
        ({**FP8, "weight_block_size": [0, 128]}, "weight_block_size"),
        ({**FP8, "weight_block_size": [128, 2**70]}, "weight_block_size"),
        ({**FP8, "weight_block_size": [True, 1]}, "weight_block_size"),
        ({"quant_method": "modelopt"}, "quant_algo"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "quant_algo"),
        ({**KEYS_AND_VALUES, "quant_algo": []}, "quant_algo must be a string"),
        (
            {"quant_method": "modelopt", "quantization": {"quant_algo": "W4A8_AWQ"}},
            "quantization_config: quantization: quant_algo",
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32}, "group_size"),
    ],
)
def test_what_is_not_read_is_named(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(**values)
    message = str(refused.value)
    assert named in message
    assert message.startswith("config.json: quantization_config")
    assert len(message) < 400


def test_a_file_of_its_own_may_say_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert read_quantization(tmp_path) is None
    own = tmp_path / "hf_quant_config.json"
    own.write_text(json.dumps({"producer": {}}))
    assert read_quantization(tmp_path) is None
    own.write_text(json.dumps({"quantization": {"quant_algo": "NVFP4", "group_size": 16}}))
    found = read_quantization(tmp_path)
    assert found is not None
    assert found.description == "nvfp4 (modelopt)"
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": AWQ}))
    found = read_quantization(tmp_path)
    assert found is not None
    assert found.scheme_of("x") == Awq(128)


@pytest.mark.parametrize(
    ("name", "values", "scheme"),
    [
        (
            "quantize_config.json",
            {"bits": 4, "group_size": 128, "desc_act": True, "model_name_or_path": None},
            Gptq(4, 128, True, ordered=True),
        ),
        (
            "quantize_config.json",
            {"bits": 8, "group_size": -1, "checkpoint_format": "gptq_v2"},
            Gptq(8, None, False),
        ),
        ("quantize_config.json", {**AWQ, "quant_method": "awq"}, Awq(128)),
        (
            "quant_config.json",
            {"zero_point": True, "q_group_size": 64, "w_bit": 4, "version": "GEMM"},
            Awq(64),
        ),
    ],
    ids=["gptq", "gptq v2", "awq in the other's", "awq"],
)
def test_older_tools_wrote_files_of_their_own(
    name: str, values: dict[str, Any], scheme: Any, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_text(json.dumps(values))
    found = read_quantization(tmp_path)
    assert found is not None
    assert found.scheme_of("model.layers.0.mlp.up_proj") == scheme


@pytest.mark.parametrize(
    "values",
    [
        {"per_channel": True, "reduce_range": True, "per_model_config": {"model": {}}},
        {"modes": ["fp16", "q8"], "per_channel": False, "block_size": None},
        {},
    ],
    ids=["older", "newer", "empty"],
)
@pytest.mark.parametrize("name", ["quantize_config.json", "quant_config.json"])
def test_files_of_that_name_about_onnx_weights_are_ignored(
    name: str, values: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_text(json.dumps(values))
    assert read_quantization(tmp_path) is None


def test_an_error_in_such_a_file_names_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "quant_config.json").write_text(json.dumps({"w_bit": 3, "version": "GEMM"}))
    with pytest.raises(ConfigError, match=r"quant_config\.json: w_bit must be 4, not 3"):
        read_quantization(tmp_path)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_the_early_name_of_the_section_is_read(inside: bool, nested: bool, tmp_path: Path) -> None:
    section = compressed("pack-quantized", 4)(32)
    del section["quant_method"]
    early = {"compression_config": {"quantization_config": section} if nested else section}
    values = {"text_config": early} if inside else early
    (tmp_path / "config.json").write_text(json.dumps(values))
    quantized = read_quantization(tmp_path)
    assert quantized is not None
    assert quantized.description == "compressed-tensors, int4, groups of 32"


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"version": "0.6.0"},
        {"sparsity_config": {"format": "dense", "sparsity_structure": "2:4"}},
        {"sparsity_config": {}, "quantization_config": None},
    ],
    ids=["empty", "version", "dense", "nulls"],
)
def test_early_sections_of_plain_weights_say_so(section: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"compression_config": section}))
    assert read_quantization(tmp_path) is None


def test_early_sections_of_sparse_weights_are_refused(tmp_path: Path) -> None:
    section = {"sparsity_config": {"format": "sparse-bitmask"}}
    (tmp_path / "config.json").write_text(json.dumps({"compression_config": section}))
    with pytest.raises(ConfigError, match="sparse weights are not supported"):
        read_quantization(tmp_path)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
names = st.sampled_from(
    [
        *("bits", "group_size", "checkpoint_format", "format", "dynamic", "version", "zero_point"),
        *("weight_block_size", "quant_algo", "config_groups", "sparsity_config", "pack_dtype"),
        *("rotation", "weight_scale_semantics", "quantization", "kv_cache_quant_algo"),
    ]
)


@settings(max_examples=500)
@given(
    method=st.sampled_from(["fp8", "gptq", "awq", "compressed-tensors", "modelopt", "mxfp4"]),
    values=st.dictionaries(names, junk),
)
def test_junk_is_refused_or_read(method: str, values: dict[str, Any]) -> None:
    try:
        found = read(quant_method=method, **values)
    except ConfigError:
        return
    assert found.description
    found.scheme_of("model.layers.0.mlp.up_proj")
