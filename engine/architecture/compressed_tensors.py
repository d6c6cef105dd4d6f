"""``quantization_config`` of the compressed-tensors library: schemes for groups of modules."""

from __future__ import annotations

from dataclasses import dataclass

from engine.architecture.errors import ConfigError
from engine.architecture.fields import ConfigFields
from engine.architecture.patterns import name_pattern
from engine.architecture.schemes import (
    BY_ROW,
    MOST_INPUTS,
    MOST_RULES,
    WHOLE,
    Float4,
    Float8,
    Grid,
    IntegerCodes,
    Matches,
    ModuleRule,
    QuantizedFormat,
    Scheme,
    every,
    in_groups,
    two_sizes,
)

_DENSE = "dense"
_METHOD = "compressed-tensors"
_NAIVE = "naive-quantized"


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a format allows: ``number``: int or float; ``group``: the only number of inputs that
    share a scale."""

    number: str
    bits: tuple[int, ...]
    packed: bool = False
    group: int | None = None


_FORMATS = {
    "pack-quantized": _Kind("int", (2, 4, 8), packed=True),
    "int-quantized": _Kind("int", (4, 8)),
    "float-quantized": _Kind("float", (8,)),
    "mxfp8-quantized": _Kind("float", (8,), group=32),
    "nvfp4-pack-quantized": _Kind("float", (4,), packed=True, group=16),
    "mxfp4-pack-quantized": _Kind("float", (4,), packed=True, group=32),
}
# That format means one of these.
_NAIVE_FORMATS = {"int": "int-quantized", "float": "float-quantized"}


def early_section(fields: ConfigFields | None) -> ConfigFields | None:
    """Return what ``compression_config`` says of quantization; None if weights are floats. Early
    releases wrote it for those, too, and without their method; the first nested the schemes."""
    if fields is None:
        return None
    schemes = fields.section("quantization_config") or fields
    sparsity = fields.section("sparsity_config")
    is_dense = sparsity is None or sparsity.text("format", _DENSE) == _DENSE
    if is_dense and not schemes.has("config_groups"):
        return None
    values = {"quant_method": _METHOD, "sparsity_config": fields.values.get("sparsity_config")}
    return ConfigFields(schemes.source, {**values, **schemes.values})


def read_compressed(fields: ConfigFields) -> QuantizedFormat:
    """Raises ConfigError."""
    for name, what in (("sparsity_config", "sparse"), ("transform_config", "transformed")):
        section = fields.section(name)
        if section is not None and section.values and section.values.get("format") != _DENSE:
            raise ConfigError(f"{fields.source}: {name}: {what} weights are not supported")
    groups = fields.section("config_groups")
    if groups is None:
        raise fields.error("config_groups", "an object of schemes", None)
    if not groups.values:  # only keys and values were to be quantized
        return QuantizedFormat("compressed-tensors, floats", ())
    named: list[ModuleRule] = []
    matched: list[ModuleRule] = []
    others: list[ModuleRule] = []
    descriptions: dict[str, None] = {}
    for name in groups.values:
        group = groups.section(name)
        if group is None:
            raise groups.error(name, "an object", None)
        scheme, description = _scheme(group, fields.text("format", _DENSE))
        descriptions[description] = None
        targets = group.strings("targets")
        if not targets:
            raise group.error("targets", "a list of strings", group.values.get("targets"))
        for target in targets:
            if len(named) + len(matched) == MOST_RULES:
                raise group.error("targets", f"at most {MOST_RULES} in all", len(targets))
            if target.startswith("re:"):
                matched.append((name_pattern(group, target[3:]), scheme))
            elif target == "Linear":
                others.append((every, scheme))
            else:
                named.append((_named(target), scheme))
    title = "compressed-tensors, " + " and ".join(list(descriptions)[:3])
    return QuantizedFormat(title, (*named, *matched, *others))


def _named(target: str) -> Matches:
    return lambda module: module == target


def _scheme(group: ConfigFields, usual: str) -> tuple[Scheme | None, str]:
    """Return the scheme and its description. ``usual``: the format of groups that name none."""
    name = group.text("format", usual)
    if name not in (*_FORMATS, _NAIVE, _DENSE):
        raise group.error("format", "one of " + ", ".join((*_FORMATS, _NAIVE, _DENSE)), name)
    if group.has("output_activations"):
        found = group.values["output_activations"]
        raise group.error("output_activations", "null (outputs are not rounded)", found)
    _check_inputs(group)
    weights = group.section("weights")
    if weights is None or name == _DENSE:
        return None, "floats"
    number = weights.text("type", "int")
    if number not in _NAIVE_FORMATS:
        raise weights.error("type", "int or float", number)
    kind = _FORMATS[_NAIVE_FORMATS[number] if name == _NAIVE else name]
    if number != kind.number:
        raise weights.error("type", f"{kind.number} with the format {name}", number)
    bits = weights.integer("num_bits", 8, low=1, high=32)
    if bits not in kind.bits:
        raise weights.error("num_bits", " or ".join(map(str, kind.bits)), bits)
    grid = _grid(weights)
    if kind.group is not None and grid != Grid(1, kind.group):
        raise weights.error("group_size", str(kind.group), grid.columns)
    if kind.number == "int":
        return _integers(weights, kind, bits, grid), f"int{bits}, {_shared(grid)}"
    if 4 in kind.bits:
        whole = "weight_global_scale" if kind.group == 16 else None
        return Float4(grid.columns or 0, whole_scale=whole, divides=True), name.split("-")[0]
    return Float8((grid,)), f"fp8, {_shared(grid)}"


def _integers(weights: ConfigFields, kind: _Kind, bits: int, grid: Grid) -> IntegerCodes:
    if grid.rows not in (None, 1):
        raise weights.error("strategy", "tensor, channel or group (of integers)", "block")
    has_zeros = not weights.flag("symmetric", True)
    if has_zeros and grid.rows is None:
        raise weights.error("strategy", "channel or group (with zero points)", "tensor")
    return IntegerCodes(
        bits, kind.packed, grid, has_zeros, weights.values.get("actorder") in ("group", True)
    )


def _shared(grid: Grid) -> str:
    if grid.rows is None:
        return "one scale"
    if grid.rows == 1:
        return in_groups(grid.columns)
    return f"blocks of {grid.rows}x{grid.columns}"


def _grid(weights: ConfigFields) -> Grid:
    size = weights.integer("group_size", -1, low=-1, high=MOST_INPUTS) or -1
    strategy = weights.text("strategy", "group" if size > 0 else "tensor")
    if strategy == "tensor":
        return WHOLE
    if strategy == "channel" or (strategy == "group" and size == -1):
        return BY_ROW
    if strategy in ("group", "tensor_group") and size > 0:
        return Grid(1, size)
    block = two_sizes(weights, "block_structure")
    if strategy == "block" and block is not None:
        return Grid(*block)
    raise weights.error(
        "strategy",
        "tensor, channel, group (with group_size) or block (with block_structure)",
        strategy,
    )


def _check_inputs(group: ConfigFields) -> None:
    """Inputs are rounded more finely here than checkpoints of 8 bits and of 4-bit floats are made
    for, or not at all. Those made for inputs of fewer bits would give other results."""
    inputs = group.section("input_activations")
    if inputs is None:
        return
    bits = inputs.integer("num_bits", 8, low=1, high=32)
    is_float4 = bits == 4 and inputs.text("type", "int") == "float"
    if bits < 8 and not is_float4:
        raise inputs.error("num_bits", "8 or more (4 of floats)", bits)
