"""Packs weights of few bits in the format of ``integers.h``."""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor
from torch.nn import functional

from engine.device.pages import zeros
from engine.weights.grouped import GroupedWeight, Scales

GROUP_INPUTS = 32
"""Inputs of a group: each kind's scales are for as many, or for half of them."""
SUPER = 8
"""Groups that share a header."""
_OFFSET = 8  # of 4-bit codes around zero
_HALF = 16
_SMALL = 32  # the largest code of BYTES_K
_MOST_FINE = 63  # of the scales of NIBBLES_K: their products with codes are split in two bytes
_MOST_ZERO = 255
_MOST_MX = 12
_MANTISSA_BITS = 23  # of float32
_EXPONENT = 0xFF << _MANTISSA_BITS


class IntegerKind(IntEnum):
    """How weights and their scales are stored; numbered as in ``integers.h``."""

    NIBBLES = 16
    NIBBLES_K = 17
    BYTES = 18
    BYTES_K = 19
    BYTES_FLOAT = 20
    NIBBLES_ZERO = 21
    NIBBLES_MX = 22


def is_nibbles(kind: IntegerKind) -> bool:
    """True if codes have four bits."""
    return kind in (
        *(IntegerKind.NIBBLES, IntegerKind.NIBBLES_ZERO),
        *(IntegerKind.NIBBLES_K, IntegerKind.NIBBLES_MX),
    )


def kind_of(weight: GroupedWeight) -> IntegerKind:
    """Return the smallest kind that stores the weight without loss."""
    scales, minimums = weight.scales, weight.minimums
    low, high = (int(bound) for bound in torch.aminmax(weight.codes))
    is_half = _is_half(scales.coarse)
    if scales.fine is None:
        if minimums is None and weight.group % GROUP_INPUTS == 0 and _is_mx(weight, low, high):
            return IntegerKind.NIBBLES_MX
        if weight.group % GROUP_INPUTS or not is_half:
            return IntegerKind.BYTES_FLOAT
        is_small = low >= -_OFFSET and high < _OFFSET
        if minimums is None:
            return IntegerKind.NIBBLES if is_small else IntegerKind.BYTES
        has_zeros = is_small and _zeros(scales, minimums) is not None
        return IntegerKind.NIBBLES_ZERO if has_zeros else IntegerKind.BYTES_FLOAT
    if not is_half or weight.shape[1] % (GROUP_INPUTS * SUPER):
        return IntegerKind.BYTES_FLOAT
    if weight.group == _HALF and minimums is None and low >= -_SMALL and high <= _SMALL:
        return IntegerKind.BYTES_K
    if minimums is None or minimums.fine is None or not _is_half(minimums.coarse):
        return IntegerKind.BYTES_FLOAT
    is_small = low >= 0 and high < 2 * _OFFSET and int(scales.fine.max()) <= _MOST_FINE
    if weight.group == GROUP_INPUTS and is_small:
        return IntegerKind.NIBBLES_K
    return IntegerKind.BYTES_FLOAT


def packed_integers(weight: GroupedWeight, kind: IntegerKind, panel: int) -> Tensor:
    """Return bytes [panels, bytes of a panel] in huge pages. Outputs beyond the last, and inputs up
    to a whole group, are zeros."""
    if kind is IntegerKind.BYTES_FLOAT:
        weight = weight.in_one_form(_HALF)
    elif weight.scales.fine is None:
        weight = weight.in_groups_of(GROUP_INPUTS)
    inputs = weight.shape[1]
    missing = -inputs % GROUP_INPUTS
    more = (inputs + missing) // weight.group - -(-inputs // weight.group)  # groups
    weight = GroupedWeight(
        _padded(weight.codes, 1, missing),
        weight.scales.map(lambda part: _padded(part, 1, more)),
        None
        if weight.minimums is None
        else weight.minimums.map(lambda part: _padded(part, 1, more)),
        weight.group,
    )
    scales, codes = _scales(weight, kind, panel), _codes(weight.codes, kind, panel)
    header = _header(weight, kind, panel)
    together = 1 if header is None else SUPER
    begin = 0 if header is None else header.shape[2]
    panels, groups, size = scales.shape
    blocks = groups // together
    packed = zeros(panels, blocks, begin + together * (size + codes.shape[2]), dtype=torch.uint8)
    if header is not None:
        packed[:, :, :begin] = header
    body = packed[:, :, begin:].view(panels, blocks, together, -1)
    body[..., :size] = scales.view(panels, blocks, together, size)
    body[..., size:] = codes.view(panels, blocks, together, -1)
    return packed.flatten(1)


def _is_half(values: Tensor) -> bool:
    """True if all are float16 numbers."""
    return bool((values.half().float() == values).all())


def _zeros(scales: Scales, minimums: Scales) -> Tensor | None:
    """uint8 [outputs, groups]: the stored codes that mean zero; None if there are none."""
    if minimums.fine is not None:
        return None
    zeros = (minimums.coarse / scales.coarse).nan_to_num_(nan=0.0).round_()
    stored = zeros + _OFFSET
    fits = (zeros * scales.coarse == minimums.coarse) & (stored >= 0) & (stored <= _MOST_ZERO)
    return stored.to(torch.uint8) if bool(fits.all()) else None


def _is_mx(weight: GroupedWeight, low: int, high: int) -> bool:
    """True if the codes are twice numbers of E2M1, and the scales positive powers of two, or
    zeros; of groups whose codes are all zero, the scales may be anything."""
    if low < -_MOST_MX or high > _MOST_MX:
        return False
    scales = weight.scales.coarse
    wrong = ~_has_mx_exponent(scales)
    if bool(wrong.any()):
        outputs, groups = scales.shape
        codes = _padded(weight.codes, 1, groups * weight.group - weight.shape[1])
        if bool((codes.view(outputs, groups, -1).any(2) & wrong).any()):
            return False
    sizes = weight.codes.abs()
    return bool(((sizes <= 4) | (sizes == 6) | (sizes == 8) | (sizes == _MOST_MX)).all())


def _has_mx_exponent(scales: Tensor) -> Tensor:
    """bool: where a scale is zero or a positive power of two that is not subnormal."""
    bits = scales.contiguous().view(torch.int32)
    return ((bits & ~_EXPONENT) == 0) & (bits != _EXPONENT)


def _mx_codes(levels: Tensor) -> Tensor:
    """Return the places of int8 ``levels`` in ``mx_levels``."""
    sizes = levels.abs()
    places = sizes - (sizes > 4).to(torch.int8) - (sizes > 6).to(torch.int8)
    places -= 3 * (sizes > 8).to(torch.int8)
    return places + 8 * (levels < 0).to(torch.int8)


def _padded(part: Tensor, dim: int, count: int) -> Tensor:
    """Append ``count`` zeros to a matrix; no copy is made for none."""
    if not count:
        return part
    return functional.pad(part, (0, count) if dim else (0, 0, 0, count))


def _codes(codes: Tensor, kind: IntegerKind, panel: int) -> Tensor:
    """uint8 [panels, groups, bytes]"""
    outputs, inputs = codes.shape
    groups = inputs // GROUP_INPUTS
    if kind in (IntegerKind.NIBBLES, IntegerKind.NIBBLES_ZERO):
        codes = codes + _OFFSET
    if kind is IntegerKind.NIBBLES_MX:
        codes = _mx_codes(codes)
    if is_nibbles(kind):
        pairs = codes.view(outputs, -1, 2, 4)
        codes = (pairs[:, :, 0] | pairs[:, :, 1] << 4).view(outputs, -1)
    # Four adjacent bytes stay together, so they are moved as one integer.
    panels = -(-outputs // panel)
    padded = _padded(codes.view(torch.int32), 0, panels * panel - outputs)
    steps = padded.view(panels, panel, groups, -1).permute(0, 2, 3, 1)
    return steps.reshape(panels, groups, -1).view(torch.uint8)


def _by_panel(values: Tensor, panel: int, per_group: int) -> Tensor:
    """[outputs, groups * per_group] to [panels, groups, per_group, outputs of a panel]"""
    panels = -(-values.shape[0] // panel)
    padded = _padded(values, 0, panels * panel - values.shape[0])
    return padded.view(panels, panel, -1, per_group).permute(0, 2, 3, 1).contiguous()


def _bytes(values: Tensor) -> Tensor:
    """[panels, groups, ...] to uint8 [panels, groups, bytes]"""
    return values.contiguous().flatten(2).view(torch.uint8)


def _scales(weight: GroupedWeight, kind: IntegerKind, panel: int) -> Tensor:
    scales, minimums = weight.scales, weight.minimums
    if kind in (IntegerKind.NIBBLES, IntegerKind.BYTES):
        return _bytes(_by_panel(scales.coarse, panel, 1).half())
    if kind is IntegerKind.NIBBLES_MX:
        exponents = scales.coarse.contiguous().view(torch.int32) >> _MANTISSA_BITS
        exponents = exponents.where(_has_mx_exponent(scales.coarse), 0)  # codes of zero
        return _bytes(_by_panel(exponents.to(torch.uint8), panel, 1))
    if kind is IntegerKind.NIBBLES_ZERO:
        assert minimums is not None
        zeros = _zeros(scales, minimums)
        assert zeros is not None
        halves = _bytes(_by_panel(scales.coarse, panel, 1).half())
        return torch.cat([halves, _bytes(_by_panel(zeros, panel, 1))], dim=2)
    if kind is IntegerKind.BYTES_FLOAT:
        assert minimums is not None
        both = [_by_panel(part.coarse, panel, 2) for part in (scales, minimums)]
        return _bytes(torch.cat(both, dim=2))
    assert scales.fine is not None
    if kind is IntegerKind.BYTES_K:
        return _bytes(_by_panel(scales.fine, panel, 2).to(torch.int8))
    assert minimums is not None
    assert minimums.fine is not None
    fine = [_by_panel(part, panel, 1) for part in (scales.fine, minimums.fine)]
    return _bytes(torch.cat(fine, dim=2).to(torch.uint8))


def _header(weight: GroupedWeight, kind: IntegerKind, panel: int) -> Tensor | None:
    """uint8 [panels, blocks, bytes]"""
    if kind not in (IntegerKind.NIBBLES_K, IntegerKind.BYTES_K):
        return None
    parts = [weight.scales.coarse]
    if kind is IntegerKind.NIBBLES_K:
        assert weight.minimums is not None
        parts.append(weight.minimums.coarse)
    return _bytes(torch.cat([_by_panel(part, panel, 1).half() for part in parts], dim=2))
