"""Where each format keeps a matrix's codes, scales and zero points.

Shapes and types are checked when a checkpoint is opened; values when a matrix is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from engine.architecture.errors import WeightsError
from engine.architecture.schemes import (
    Awq,
    Experts4,
    Float4,
    Float8,
    Gptq,
    Grid,
    IntegerCodes,
    Scheme,
)
from engine.quantized.codes import (
    awq_ordered,
    centred,
    codes_of,
    e2m1,
    plus_one,
    scale_values,
)
from engine.quantized.matrices import QuantizedMatrix
from engine.weights.stored import Shape, StoredTensor, read_codes

_FLOATS = ("F32", "F16", "BF16")
_EXPONENTS = ("U8", "F8_E8M0")
_E4M3 = "F8_E4M3"
_WORD_BITS = 32
_BLOCK = 32  # elements of a block of MXFP4
_E2M1_BITS = 5  # of twice the numbers, as integers


@dataclass(frozen=True, slots=True)
class QuantizedTensor:
    """A tensor by the name and shape that it has in an unquantized checkpoint. ``load`` reads it as
    a matrix; ``stack``: of so many matrices below each other, each the transposed of what the
    checkpoint would have. ``taken``: the stored tensors that it is made of."""

    name: str
    shape: Shape
    load: Callable[[], QuantizedMatrix]
    taken: frozenset[str]
    stack: int = 0

    @property
    def dtype(self) -> str:
        """As one of an unquantized checkpoint."""
        return "F32"


class ModuleParts:
    """The stored tensors of one module, each checked as it is taken."""

    def __init__(self, module: str, stored: Mapping[str, StoredTensor]) -> None:
        self._module = module
        self._stored = stored
        self.taken: set[str] = set()

    def name(self, own: str) -> str:
        return f"{self._module}.{own}" if self._module else own

    def find(self, own: str) -> StoredTensor | None:
        return self._stored.get(self.name(own))

    def take(self, own: str, dtypes: Iterable[str], *shapes: Shape, dims: int = 2) -> StoredTensor:
        """Return the tensor, of one of ``shapes``, or if there are none with so many ``dims``.
        Raises WeightsError."""
        found = self.find(own)
        if found is None:
            raise WeightsError(f"the checkpoint has no {self.name(own)}")
        if found.dtype not in dtypes:
            raise WeightsError(
                f"{found.name} is of type {found.dtype} instead of {' or '.join(dtypes)}"
            )
        if found.shape not in shapes if shapes else len(found.shape) != dims:
            wanted = " or ".join(str(list(shape)) for shape in dict.fromkeys(shapes))
            raise WeightsError(
                f"{found.name} has the shape {list(found.shape)} instead of "
                f"{wanted or f'{dims} dimensions'}"
            )
        self.taken.add(found.name)
        return found

    def made(
        self, own: str, shape: Shape, load: Callable[[], QuantizedMatrix], stack: int = 0
    ) -> QuantizedTensor:
        return QuantizedTensor(self.name(own), shape, load, frozenset(self.taken), stack)


def quantized_tensor(parts: ModuleParts, own: str, scheme: Scheme) -> QuantizedTensor:
    """Return the matrix whose codes are the tensor ``own`` of a module. Raises WeightsError for
    tensors that are missing or do not fit."""
    found = _described(parts, own, scheme)
    # No memory bounds the other size then, nor the time that it takes to read.
    if 0 in found.shape:
        raise WeightsError(f"{found.name} has no elements: its shape is {list(found.shape)}")
    return found


def _described(parts: ModuleParts, own: str, scheme: Scheme) -> QuantizedTensor:
    match scheme:
        case Float8():
            return _float8(parts, scheme)
        case IntegerCodes():
            return _integers(parts, scheme)
        case Awq():
            return _awq(parts, scheme)
        case Gptq():
            return _gptq(parts, scheme)
        case Float4():
            return _float4(parts, scheme)
        case Experts4():
            return _experts4(parts, own.removesuffix("_blocks"))


# --- scales --------------------------------------------------------------------------------------


class _Shared(NamedTuple):
    """Stored scales, and of how many rows and columns each is."""

    stored: StoredTensor
    rows: int
    columns: int

    @property
    def shape(self) -> Shape:
        """[parts of rows, parts of columns]"""
        return self.stored.shape if len(self.stored.shape) == 2 else (prod(self.stored.shape), 1)

    def read(self) -> Tensor:
        return _finite(self.stored.name, scale_values(read_codes(self.stored)).view(self.shape))


def _scales(
    parts: ModuleParts, own: str, dtypes: Iterable[str], matrix: Shape, grids: Iterable[Grid]
) -> _Shared:
    """Return the scales of a matrix, which have the shape of one of ``grids``."""
    wanted: dict[Shape, Grid] = {}
    for grid in grids:
        shape = _grid_shape(grid, matrix)
        wanted.setdefault(shape, grid)
        if grid.columns is None:
            wanted.setdefault(shape[:1], grid)
        if grid.rows is None and grid.columns is None:
            wanted.setdefault((), grid)
    found = parts.take(own, dtypes, *wanted)
    grid = wanted[found.shape]
    return _Shared(found, grid.rows or max(1, matrix[0]), grid.columns or max(1, matrix[1]))


def _grid_shape(grid: Grid, matrix: Shape) -> Shape:
    rows, columns = matrix
    return (
        1 if grid.rows is None else -(-rows // grid.rows),
        1 if grid.columns is None else -(-columns // grid.columns),
    )


def _finite(name: str, scales: Tensor) -> Tensor:
    if not bool(scales.isfinite().all()):
        raise WeightsError(f"{name} has scales that are not finite numbers")
    return scales


def _within(name: str, codes: Tensor, bits: int) -> Tensor:
    """Return int8 ``codes``. Raises WeightsError for those of more than ``bits``."""
    half = 1 << bits - 1
    if bits < 8 and bool(((codes < -half) | (codes >= half)).any()):
        raise WeightsError(f"{name} has numbers outside {-half} to {half - 1}")
    return codes


def _read_once(codes: StoredTensor) -> Callable[[], Tensor]:
    """Return what reads the codes when they are first needed."""
    return cache(partial(read_codes, codes))


def _none_if_zero(zeros: Tensor) -> Tensor | None:
    return zeros if bool(zeros.any()) else None


# --- formats -------------------------------------------------------------------------------------


def _float8(parts: ModuleParts, scheme: Float8) -> QuantizedTensor:
    codes = parts.take("weight", (_E4M3,))
    own = "weight_scale_inv" if parts.find("weight_scale_inv") else "weight_scale"
    shared = _scales(parts, own, (*_FLOATS, *_EXPONENTS), codes.shape, scheme.grids)
    outputs, inputs = codes.shape

    def load() -> QuantizedMatrix:
        stored = _read_once(codes)
        scales = shared.read()
        if scheme.divides:
            scales = _finite(shared.stored.name, 1 / scales)
        return QuantizedMatrix(
            outputs,
            inputs,
            lambda first, last: stored()[first:last],
            None,
            scales,
            None,
            shared.rows,
            shared.columns,
        )

    return parts.made("weight", codes.shape, load)


def _integers(parts: ModuleParts, scheme: IntegerCodes) -> QuantizedTensor:
    bits = scheme.bits
    if scheme.packed:
        codes = parts.take("weight_packed", ("I32",))
        shape = _packed_shape(parts, codes, bits)
    else:
        codes = parts.take("weight", ("I8",))
        shape = codes.shape
    outputs, inputs = shape
    shared = _scales(parts, "weight_scale", _FLOATS, shape, (scheme.grid,))
    zeros = None
    if scheme.has_zeros and scheme.packed:
        words = (-(-outputs * bits // _WORD_BITS), shared.shape[1])
        zeros = parts.take("weight_zero_point", ("I32",), words)
    elif scheme.has_zeros:
        zeros = parts.take("weight_zero_point", ("I8",), shared.stored.shape)
    index = None
    if scheme.ordered or parts.find("weight_g_idx"):
        index = parts.take("weight_g_idx", ("I32", "I64"), (inputs,))

    def load() -> QuantizedMatrix:
        stored = _read_once(codes)

        def rows_of(first: int, last: int) -> Tensor:
            rows = stored()[first:last]
            if scheme.packed:
                return centred(codes_of(rows, bits)[:, :inputs], bits)
            return _within(codes.name, rows, bits)

        subtracted = None
        if zeros is not None and scheme.packed:
            along = codes_of(read_codes(zeros).t(), bits)[:, :outputs]
            subtracted = _none_if_zero(centred(along, bits).t().to(torch.int16))
        elif zeros is not None:
            found = _within(zeros.name, read_codes(zeros), bits)
            subtracted = _none_if_zero(found.view(shared.shape).to(torch.int16))
        return QuantizedMatrix(
            outputs,
            inputs,
            rows_of,
            bits,
            shared.read(),
            subtracted,
            shared.rows,
            shared.columns,
            _order(index, shared.shape[1], shared.columns),
        )

    return parts.made("weight", shape, load)


def _packed_shape(parts: ModuleParts, codes: StoredTensor, bits: int) -> Shape:
    """Return the shape of a packed matrix, which is stored with it. Raises WeightsError."""
    stored = parts.take("weight_shape", ("I64", "I32"), (2,))
    outputs, inputs = read_codes(stored).tolist()
    rows, words = codes.shape
    if outputs != rows or inputs < 0 or -(-inputs * bits // _WORD_BITS) != words:
        raise WeightsError(
            f"{stored.name} says {[outputs, inputs]}, which does not fit {codes.name} "
            f"{list(codes.shape)} of {bits} bits"
        )
    return outputs, inputs


def _awq(parts: ModuleParts, scheme: Awq) -> QuantizedTensor:
    codes = parts.take("qweight", ("I32",))
    inputs, words = codes.shape
    outputs, bits = words * 8, 4
    groups = _groups(inputs, scheme.group)
    scales = parts.take("scales", _FLOATS, (groups, outputs))
    zeros = parts.take("qzeros", ("I32",), (groups, words))

    def load() -> QuantizedMatrix:
        stored = _read_once(codes)

        def rows_of(first: int, last: int) -> Tensor:
            begin, end = first // 8, -(-last // 8)
            some = awq_ordered(codes_of(stored()[:, begin:end], bits))
            some = some[:, first - begin * 8 : last - begin * 8]
            return centred(some, bits).t()

        subtracted = centred(awq_ordered(codes_of(read_codes(zeros), bits)), bits)
        return QuantizedMatrix(
            outputs,
            inputs,
            rows_of,
            bits,
            _finite(scales.name, read_codes(scales).float()).t(),
            _none_if_zero(subtracted.t().to(torch.int16)),
            1,
            scheme.group or max(1, inputs),
        )

    return parts.made("weight", (outputs, inputs), load)


def _gptq(parts: ModuleParts, scheme: Gptq) -> QuantizedTensor:
    bits, each = scheme.bits, _WORD_BITS // scheme.bits
    codes = parts.take("qweight", ("I32",))
    words, outputs = codes.shape
    inputs = words * each
    groups = _groups(inputs, scheme.group)
    scales = parts.take("scales", _FLOATS, (groups, outputs))
    zeros = parts.take("qzeros", ("I32",), (groups, -(-outputs // each)))
    index = None
    if scheme.ordered or parts.find("g_idx"):
        index = parts.take("g_idx", ("I32", "I64"), (inputs,))
    columns = scheme.group or max(1, inputs)

    def load() -> QuantizedMatrix:
        stored = _read_once(codes)

        def rows_of(first: int, last: int) -> Tensor:
            return centred(codes_of(stored()[:, first:last].t(), bits), bits)

        found = read_codes(zeros)
        if scheme.zeros_less_one:
            # GPTQModel subtracts from whole words and adds to them, so that a zero point of 0
            # borrows from the next code. AutoGPTQ's packing loses the codes after a 0; no reading
            # restores those.
            found = plus_one(found, bits)
        subtracted = centred(codes_of(found, bits)[:, :outputs], bits).to(torch.int16)
        return QuantizedMatrix(
            outputs,
            inputs,
            rows_of,
            bits,
            _finite(scales.name, read_codes(scales).float()).t(),
            _none_if_zero(subtracted.t()),
            1,
            columns,
            _order(index, groups, columns),
        )

    return parts.made("weight", (outputs, inputs), load)


def _groups(inputs: int, group: int | None) -> int:
    """Return the number of groups of inputs."""
    return 1 if group is None else -(-inputs // group)


def _order(index: StoredTensor | None, groups: int, columns: int) -> Tensor | None:
    """Return the group of each input, unless groups are runs of inputs. Raises WeightsError."""
    if index is None:
        return None
    order = read_codes(index).long()
    if order.numel() and not 0 <= int(order.min()) <= int(order.max()) < groups:
        raise WeightsError(f"{index.name} names groups outside 0 to {groups - 1}")
    is_run = torch.equal(order, torch.arange(order.numel()) // columns)
    return None if is_run else order


def _float4(parts: ModuleParts, scheme: Float4) -> QuantizedTensor:
    codes = parts.take(scheme.codes, ("U8",))
    outputs, inputs = codes.shape[0], codes.shape[1] * 2
    is_mx = scheme.whole_scale is None
    dtypes = _EXPONENTS if is_mx else (_E4M3,)
    grid = Grid(1, scheme.group)
    shared = _scales(parts, "weight_scale", dtypes, (outputs, inputs), (grid,))
    whole = None
    if scheme.whole_scale is not None:
        whole = parts.take(scheme.whole_scale, ("F32",), (1,), ())

    def load() -> QuantizedMatrix:
        stored = _read_once(codes)
        scales = shared.read()
        if whole is not None:
            common = read_codes(whole).view(())
            scales = scales / common if scheme.divides else scales * common
            _finite(whole.name, scales)
        return QuantizedMatrix(
            outputs,
            inputs,
            lambda first, last: e2m1(stored()[first:last]),
            _E2M1_BITS,
            scales / 2,
            None,
            1,
            scheme.group,
        )

    return parts.made("weight", (outputs, inputs), load)


def _experts4(parts: ModuleParts, own: str) -> QuantizedTensor:
    blocks = parts.take(f"{own}_blocks", ("U8",), dims=4)
    experts, outputs, count, octets = blocks.shape
    if octets * 2 != _BLOCK:
        raise WeightsError(f"{blocks.name} has blocks of {octets} bytes instead of {_BLOCK // 2}")
    scales = parts.take(f"{own}_scales", ("U8",), (experts, outputs, count))
    rows, inputs = experts * outputs, count * _BLOCK

    def load() -> QuantizedMatrix:
        stored = _read_once(blocks)
        values = _finite(scales.name, scale_values(read_codes(scales)))
        return QuantizedMatrix(
            rows,
            inputs,
            lambda first, last: e2m1(stored().view(rows, -1)[first:last]),
            _E2M1_BITS,
            values.view(rows, count) / 2,
            None,
            1,
            _BLOCK,
        )

    return parts.made(own, (experts, inputs, outputs), load, stack=experts)
