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
    pairs of a head that do not turn are multiplied by one, which changes nothing."""

    def __init__(
        self, rope: RopeConfig, head_dim: int, max_positions: int, device: torch.device
    ) -> None:
        positions = torch.arange(max_positions, dtype=torch.float32)
        dim = rope.rotary_dim(head_dim)
        angles = torch.outer(positions, inverse_frequencies(rope, dim, max_positions))
        radius = torch.full_like(angles, rope.attention_factor)
        table = torch.polar(radius, angles)  # complex64
        if dim < head_dim:
            still = torch.ones(max_positions, (head_dim - dim) // 2, dtype=table.dtype)
            table = torch.cat((table, still), dim=1)
        self._table = table.to(device)

    def rotations(self, positions: Tensor) -> Tensor:
        """complex64 [tokens, 1, head_dim / 2] for int64 positions [tokens]."""
        return self._table.index_select(0, positions).unsqueeze(1)

    def cosines_and_sines(self) -> Tensor:
        """The whole table as float32 [max_positions, head_dim / 2, 2], for kernels."""
        return torch.view_as_real(self._table)


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
