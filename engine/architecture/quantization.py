"""How a checkpoint stores its weights in few bits, as ``quantization_config`` says.

Only formats that are read are described; anything else raises ConfigError, before a weight is read.
Which matrices are quantized, the checkpoint's files say: a tensor that is stored in floats is
served as such, so lists of exceptions are not needed here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.architecture.compressed_tensors import early_section, read_compressed
from engine.architecture.fields import ConfigFields, read_object
from engine.architecture.patterns import name_pattern
from engine.architecture.schemes import (
    BY_ROW,
    MOST_INPUTS,
    MOST_RULES,
    WHOLE,
    Awq,
    Experts4,
    Float4,
    Float8,
    Gptq,
    Grid,
    ModuleRule,
    QuantizedFormat,
    Scheme,
    every,
    in_groups,
    two_sizes,
)
from engine.architecture.text_part import QUANTIZATION

_MODELOPT_SECTION = "quantization"
_SEMANTICS = "weight_scale_semantics"
_GPTQ, _GPTQ_V2 = "gptq", "gptq_v2"
_GPTQ_FORMATS = ("checkpoint_format", "format")  # newer name, older name


@dataclass(frozen=True, slots=True)
class _SeparateFile:
    """A file in which some tools write what others write to config.json. ``marks``: fields, at
    least one of which it has; a file of that name with none of them belongs to another tool."""

    name: str
    method: str
    section: str | None = None
    marks: tuple[str, ...] = ()


_SEPARATE = (
    _SeparateFile("hf_quant_config.json", "modelopt", _MODELOPT_SECTION),
    # AutoGPTQ's. Converters to ONNX write a file of the same name.
    _SeparateFile("quantize_config.json", _GPTQ, marks=("bits", "quant_method")),
    # Early AutoAWQ's.
    _SeparateFile("quant_config.json", "awq", marks=("w_bit", "bits", "quant_method")),
)
SEPARATE_FILES = tuple(each.name for each in _SEPARATE)
"""Files that may say how weights are quantized where config.json does not."""


def read_quantization(directory: Path) -> QuantizedFormat | None:
    """Return the format of the checkpoint in ``directory``; None if its weights are floats. Raises
    ConfigError."""
    fields = read_object(directory / "config.json")
    section = _section(fields)
    if section is None and (text := fields.section("text_config")) is not None:
        section = _section(text)
    if section is None:
        found = (_separate_section(directory, each) for each in _SEPARATE)
        section = next((each for each in found if each is not None), None)
    return None if section is None else quantized_format(section)


def _section(fields: ConfigFields) -> ConfigFields | None:
    name, early = QUANTIZATION
    found = fields.section(name)
    return early_section(fields.section(early)) if found is None else found


def _separate_section(directory: Path, file: _SeparateFile) -> ConfigFields | None:
    path = directory / file.name
    if not path.is_file():
        return None
    whole = read_object(path)
    section = whole if file.section is None else whole.section(file.section)
    if section is None or (file.marks and not any(map(section.has, file.marks))):
        return None
    return ConfigFields(section.source, {"quant_method": file.method, **section.values})


def quantized_format(fields: ConfigFields) -> QuantizedFormat:
    """Raises ConfigError for what is not read."""
    method = fields.text("quant_method")
    if method not in _METHODS:
        raise fields.error("quant_method", "one of " + ", ".join(_METHODS), method)
    if found := fields.values.get("rotation"):  # GPTQModel's; inputs would have to be rotated, too
        raise fields.error("rotation", "null (rotated weights are not read)", found)
    return _METHODS[method](fields)


def _everywhere(description: str, scheme: Scheme) -> QuantizedFormat:
    return QuantizedFormat(description, ((every, scheme),))


# --- fp8 -----------------------------------------------------------------------------------------


def _read_fp8(fields: ConfigFields) -> QuantizedFormat:
    # GPTQModel divides by its weight_scale_inv; others multiply by what they call so.
    divides = fields.has(_SEMANTICS)
    for name in ("fmt", "format", "checkpoint_format") if divides else ("fmt",):
        kind = fields.text(name, "e4m3")
        if kind not in ("e4m3", "float8_e4m3fn"):
            raise fields.error(name, "e4m3", kind)
    if divides and (found := fields.text(_SEMANTICS)) != "inverse":
        raise fields.error(_SEMANTICS, "inverse", found)
    block = two_sizes(fields, "weight_block_size")
    if block is None:
        return _everywhere("fp8", Float8((WHOLE, BY_ROW), divides))
    rows, columns = block
    scheme = Float8((Grid(rows, columns),), divides)
    return _everywhere(f"fp8 in blocks of {rows}x{columns}", scheme)


def _read_fbgemm(fields: ConfigFields) -> QuantizedFormat:
    return _everywhere("fp8 (fbgemm), a scale for each output", Float8((BY_ROW, WHOLE)))


# --- AWQ and GPTQ --------------------------------------------------------------------------------


def _group(fields: ConfigFields, name: str = "group_size") -> int | None:
    """-1: all inputs."""
    found = fields.integer(name, 128, low=-1, high=MOST_INPUTS)
    if found == 0:
        raise fields.error(name, "-1 (all inputs) or the number of inputs", found)
    return None if found == -1 else found


def _present(fields: ConfigFields, *names: str) -> str:
    """Return the first of ``names`` that ``fields`` has, the last if it has none."""
    return next((name for name in names if fields.has(name)), names[-1])


def _read_awq(fields: ConfigFields) -> QuantizedFormat:
    name = _present(fields, "version", "format")
    version = fields.text(name, "gemm").lower()
    if version != "gemm":
        raise fields.error(name, "gemm (other layouts are not read)", version)
    name = _present(fields, "w_bit", "bits")
    bits = fields.integer(name, 4, low=1, high=32)
    if bits != 4:
        raise fields.error(name, "4", bits)
    if not fields.flag("zero_point", True):
        raise fields.error("zero_point", "true", False)
    group = _group(fields, _present(fields, "q_group_size", "group_size"))
    return _everywhere(f"awq, 4 bits, {in_groups(group)}", Awq(group))


def _read_gptq(fields: ConfigFields) -> QuantizedFormat:
    kind = _gptq_kind(fields)
    if fields.flag("is_marlin_format", False):
        raise fields.error("is_marlin_format", "false", True)
    usual = _gptq_scheme(fields)
    rules: list[ModuleRule] = []
    dynamic = fields.section("dynamic") or ConfigFields(fields.source, {})
    if len(dynamic.values) > MOST_RULES:
        raise fields.error("dynamic", f"at most {MOST_RULES} patterns", len(dynamic.values))
    for text in dynamic.values:
        if text.startswith("-:"):
            rules.append((name_pattern(dynamic, text[2:]), None))
            continue
        own = dynamic.section(text)
        own_values = own.values if own else {}
        merged = {**fields.values, **own_values}
        if any(name in own_values for name in _GPTQ_FORMATS):
            merged |= {name: own_values.get(name) for name in _GPTQ_FORMATS}
        source = f"{dynamic.source}: {text[:80]}"
        scheme = _gptq_scheme(ConfigFields(source, merged))
        rules.append((name_pattern(dynamic, text.removeprefix("+:")), scheme))
    rules.append((every, usual))
    title = "gptq" if kind == _GPTQ else "gptq v2"
    mixed = ", mixed" if len({scheme for _, scheme in rules if scheme}) > 1 else ""
    return QuantizedFormat(
        f"{title}, {usual.bits} bits, {in_groups(usual.group)}{mixed}", tuple(rules)
    )


def _gptq_kind(fields: ConfigFields) -> str:
    # If they differ, transformers goes by the older name, GPTQModel by the newer.
    name = _present(fields, *_GPTQ_FORMATS)
    kind = fields.text(name, _GPTQ)
    if kind not in (_GPTQ, _GPTQ_V2):
        raise fields.error(name, "gptq or gptq_v2 (other layouts are not read)", kind)
    return kind


def _gptq_scheme(fields: ConfigFields) -> Gptq:
    pack = fields.text("pack_dtype", "int32").removeprefix("torch.")
    if pack != "int32":
        raise fields.error("pack_dtype", "int32", pack)
    bits = fields.integer("bits", low=1, high=32)
    if bits not in (2, 4, 8):
        raise fields.error("bits", "2, 4 or 8", bits)
    group = _group(fields)
    ordered = group is not None and fields.flag("desc_act", False)
    return Gptq(bits, group, _gptq_kind(fields) == _GPTQ, ordered)


# --- 4-bit floats --------------------------------------------------------------------------------


def _read_mxfp4(fields: ConfigFields) -> QuantizedFormat:
    return _everywhere("mxfp4 experts", Experts4())


def _read_modelopt(fields: ConfigFields) -> QuantizedFormat:
    fields = fields.section(_MODELOPT_SECTION) or fields
    if fields.values.get("quant_algo") in (None, "") and fields.has("kv_cache_quant_algo"):
        return QuantizedFormat("modelopt, weights in floats", ())
    algorithm = fields.text("quant_algo")
    if algorithm == "FP8":
        return _everywhere("fp8 (modelopt)", Float8((WHOLE, BY_ROW)))
    if algorithm != "NVFP4":
        raise fields.error("quant_algo", "FP8 or NVFP4", algorithm)
    group = fields.integer("group_size", 16, low=1, high=MOST_INPUTS)
    if group != 16:
        raise fields.error("group_size", "16", group)
    scheme = Float4(16, codes="weight", whole_scale="weight_scale_2")
    return _everywhere("nvfp4 (modelopt)", scheme)


_METHODS: dict[str, Callable[[ConfigFields], QuantizedFormat]] = {
    "fp8": _read_fp8,
    "fbgemm_fp8": _read_fbgemm,
    "compressed-tensors": read_compressed,
    "awq": _read_awq,
    "gptq": _read_gptq,
    "mxfp4": _read_mxfp4,
    "modelopt": _read_modelopt,
}
