"""The canonical form of weights of few bits: small integers with a scale for each group of inputs.

    weight[o, i] = scales[o, g] * codes[o, i] - minimums[o, g],  g = i // group

Every integer format of 2 to 8 bits has this form, so that a reader only produces it and a kernel
only consumes it. Levels that are not equidistant (IQ4, MXFP4) are integers too, and are stored as
such.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Scales:
    """A number for each output and group: ``coarse`` float32 [outputs, groups]; or with ``fine``
    int16 [outputs, groups] the product of both, of which ``coarse`` has one for several adjacent
    groups."""

    coarse: Tensor
    fine: Tensor | None = None

    def values(self) -> Tensor:
        """Return float32 [outputs, groups], each product rounded once."""
        if self.fine is None:
            return self.coarse
        outputs, blocks = self.coarse.shape
        parts = self.fine.float().view(outputs, blocks, -1)
        return (self.coarse.unsqueeze(2) * parts).view(outputs, -1)

    def map(self, change: Callable[[Tensor], Tensor]) -> Scales:
        """Return scales whose parts are changed alike."""
        return Scales(change(self.coarse), None if self.fine is None else change(self.fine))

    def put(self, first: int, rows: Scales) -> None:
        last = first + rows.coarse.shape[0]
        self.coarse[first:last] = rows.coarse
        if self.fine is not None and rows.fine is not None:
            self.fine[first:last] = rows.fine


@dataclass(frozen=True, slots=True)
class GroupedWeight:
    """``codes``: int8 [outputs, inputs]; of a ``Float8Source``, float8_e4m3fn. ``minimums`` is None
    where all are zero. The last group may have fewer inputs than the others."""

    codes: Tensor
    scales: Scales
    minimums: Scales | None
    group: int

    @property
    def shape(self) -> tuple[int, int]:
        outputs, inputs = self.codes.shape
        return outputs, inputs

    def map(self, change: Callable[[Tensor], Tensor]) -> GroupedWeight:
        """Return a weight of which codes, scales and minimums are changed alike, by output."""
        return GroupedWeight(
            change(self.codes),
            self.scales.map(change),
            None if self.minimums is None else self.minimums.map(change),
            self.group,
        )

    def rows(self, index: Tensor) -> GroupedWeight:
        """Return the outputs ``index``, in its order."""
        return self.map(lambda part: part.index_select(0, index))

    def slice(self, first: int, count: int) -> GroupedWeight:
        """Return the outputs from ``first`` on, without a copy."""
        return self.map(lambda part: part[first : first + count])

    def put(self, first: int, rows: GroupedWeight) -> None:
        """Set the outputs from ``first`` on."""
        self.codes[first : first + rows.shape[0]] = rows.codes
        self.scales.put(first, rows.scales)
        if self.minimums is not None and rows.minimums is not None:
            self.minimums.put(first, rows.minimums)

    def is_like(self, other: GroupedWeight) -> bool:
        """True if both have the same inputs, groups and kinds of scales."""
        return (
            self.codes.shape[1] == other.codes.shape[1]
            and self.group == other.group
            and _form(self.scales) == _form(other.scales)
            and _form(self.minimums) == _form(other.minimums)
        )

    def in_one_form(self, group: int) -> GroupedWeight:
        """Return the same weights with one scale and one minimum for every ``group`` inputs, which
        divides the present number."""
        minimums = self.minimums or Scales(torch.zeros_like(self.scales.values()))
        return self._divided(group, self.scales, minimums)

    def in_groups_of(self, group: int) -> GroupedWeight:
        """Return the same weights with a scale for every ``group`` inputs, which divides the
        present number; for a weight whose scales are in one part."""
        return self._divided(group, self.scales, self.minimums)

    def _divided(self, group: int, scales: Scales, minimums: Scales | None) -> GroupedWeight:
        count = -(-self.shape[1] // group)

        def values(each: Scales) -> Scales:
            return Scales(each.values().repeat_interleave(self.group // group, 1)[:, :count])

        return GroupedWeight(
            self.codes, values(scales), None if minimums is None else values(minimums), group
        )

    def dequantised(self) -> Tensor:
        """Return float32 [outputs, inputs], each product and difference rounded once."""
        outputs, inputs = self.shape
        missing = -inputs % self.group
        values = self.codes.float()
        if missing:
            values = functional.pad(values, (0, missing))
        values = values.view(outputs, -1, self.group)
        values *= self.scales.values().unsqueeze(2)
        if self.minimums is not None:
            values -= self.minimums.values().unsqueeze(2)
        return values.view(outputs, -1)[:, :inputs].contiguous()


def _form(scales: Scales | None) -> tuple[bool, ...]:
    return () if scales is None else (scales.fine is None,)


def joined(parts: list[GroupedWeight]) -> GroupedWeight:
    """Concatenate the outputs of weights with the same inputs."""
    return combined(alike(parts), torch.cat)


def alike(parts: list[GroupedWeight]) -> list[GroupedWeight]:
    """Return the same weights in one form, unless they already have the same."""
    if all(parts[0].is_like(part) for part in parts):
        return parts
    group = math.gcd(*(part.group for part in parts))
    return [part.in_one_form(group) for part in parts]


def combined(parts: list[GroupedWeight], join: Callable[[list[Tensor]], Tensor]) -> GroupedWeight:
    """Return one weight made of weights of one form, of whose codes, scales and minimums ``join``
    makes one each."""

    def of(each: list[Scales]) -> Scales:
        fine = [scales.fine for scales in each if scales.fine is not None]
        return Scales(join([scales.coarse for scales in each]), join(fine) if fine else None)

    minimums = [part.minimums for part in parts if part.minimums is not None]
    return GroupedWeight(
        join([part.codes for part in parts]),
        of([part.scales for part in parts]),
        of(minimums) if minimums else None,
        parts[0].group,
    )
