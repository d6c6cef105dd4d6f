"""Rotary position embeddings: frequencies and rotation.

The rotation turns adjacent elements: the loader reorders the rows of query and key projections
accordingly, so that a rotation is one complex multiplication (scores are sums over pairs, so their
order within a head is free).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.architecture.rope import RopeConfig

_FIRST_POSITIONS = 65536  # 32 MB for heads of 128 elements


def inverse_frequencies(rope: RopeConfig, head_dim: int, max_positions: int = 0) -> Tensor:
    """float32 [head_dim / 2]: radians by which each pair turns per position, for ``head_dim``
    elements that turn, of a model of up to ``max_positions`` tokens."""
    even = torch.arange(0, head_dim, 2, dtype=torch.int64).to(torch.float32)
    plain = 1.0 / (rope.theta ** (even / head_dim))
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.kind == "proportional":
        turning = int(rope.turning * head_dim // 2)
        return plain.where(torch.arange(head_dim // 2) < turning, 0.0) / rope.factor
    if rope.kind == "llama3":
        return _llama3(rope, plain)
    if rope.kind == "yarn":
        return _yarn(rope, plain, head_dim)
    if rope.kind == "longrope":
        is_long = max_positions > rope.original_positions
        factors = torch.tensor(rope.long_factors if is_long else rope.short_factors)
        return 1.0 / (factors * rope.theta ** (even / head_dim))
    return plain


def _llama3(rope: RopeConfig, plain: Tensor) -> Tensor:
    """Long wavelengths are stretched, short ones kept, those between blended, if there are any (in
    Llama 4 Scout there are none)."""
    wavelength = 2 * math.pi / plain
    turns = rope.original_positions / wavelength  # over the original context
    if rope.high_freq_factor == rope.low_freq_factor:
        return plain.where(turns >= rope.low_freq_factor, plain / rope.factor)
    smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    smooth = smooth.clamp(0.0, 1.0)
    return (1 - smooth) * plain / rope.factor + smooth * plain


def _yarn(rope: RopeConfig, plain: Tensor, head_dim: int) -> Tensor:
    """Pairs that turn often are kept, those that turn rarely interpolated, a ramp between."""

    def dimension(turns: float) -> float:
        length = rope.original_positions / (turns * 2 * math.pi)
        return head_dim * math.log(length) / (2 * math.log(rope.theta))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    high = high + 0.001 if high == low else high
    ramp = (torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low)
    interpolated = ramp.clamp(0.0, 1.0)
    return plain / rope.factor * interpolated + plain * (1 - interpolated)


class RotaryEmbedding:
    """The table of rotations up to ``max_positions``, gathered once per step for all layers. The
    pairs of a head that do not turn are multiplied by one, which changes nothing.

    On the CPU the table begins small and grows with the longest sequence so far: models whose
    configuration allows ten million positions would take 5 GB, and few sequences are long. A GPU's
    table is whole, because there the host does not know the positions.
    """

    def __init__(
        self, rope: RopeConfig, head_dim: int, max_positions: int, device: torch.device
    ) -> None:
        self._max_positions = max_positions
        self._device = device
        dim = rope.rotary_dim(head_dim)
        self._frequencies = inverse_frequencies(rope, dim, max_positions)
        self._radius = rope.attention_factor
        self._still = (head_dim - dim) // 2  # pairs that do not turn
        first = min(max_positions, _FIRST_POSITIONS) if device.type == "cpu" else max_positions
        self._table = self._rows(0, first)

    def rotations(self, positions: Tensor) -> Tensor:
        """complex64 [tokens, 1, head_dim / 2] for int64 positions [tokens]."""
        if self._table.shape[0] < self._max_positions and positions.shape[0]:
            self._grow(int(positions.max()) + 1)
        return self._table.index_select(0, positions).unsqueeze(1)

    def cosines_and_sines(self) -> Tensor:
        """The whole table as float32 [max_positions, head_dim / 2, 2], for kernels."""
        self._grow(self._max_positions)
        return torch.view_as_real(self._table)

    def _grow(self, needed: int) -> None:
        """Extend the table to ``needed`` positions, or to twice its length if that is more."""
        length = self._table.shape[0]
        if needed > length:
            end = min(self._max_positions, max(needed, 2 * length))
            self._table = torch.cat((self._table, self._rows(length, end)))

    def _rows(self, begin: int, end: int) -> Tensor:
        """complex64 [end - begin, head_dim / 2]."""
        positions = torch.arange(begin, end, dtype=torch.float32)
        angles = torch.outer(positions, self._frequencies)
        rows = torch.polar(torch.full_like(angles, self._radius), angles)
        if self._still:
            rows = torch.cat((rows, torch.ones(end - begin, self._still, dtype=rows.dtype)), dim=1)
        return rows.to(self._device)


def rotate_(x: Tensor, rotations: Tensor) -> None:
    """Turn adjacent pairs of ``x`` [tokens, heads, head_dim] in place, in float32."""
    if x.dtype == torch.float32:
        torch.view_as_complex(x.view(*x.shape[:-1], -1, 2)).mul_(rotations)
        return
    turned = torch.view_as_complex(x.float().view(*x.shape[:-1], -1, 2)) * rotations
    x.copy_(torch.view_as_real(turned).flatten(-2))


def pair_order(head_dim: int, rotary_dim: int | None = None) -> Tensor:
    """int64 [head_dim]: of the elements that turn (by default all), checkpoints pair element i with
    i + half of them; this order puts the two side by side. Those that do not turn stay."""
    dim = head_dim if rotary_dim is None else rotary_dim
    pairs = torch.arange(dim).view(2, -1).t().reshape(-1)
    return pairs if dim == head_dim else torch.cat((pairs, torch.arange(dim, head_dim)))
