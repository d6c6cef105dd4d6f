"""Rotary grouped-query attention of a Llama-like model's layers, in torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.architecture.features import QKNorm
from engine.architecture.rope import RopeConfig
from engine.architecture.rotary import rotate_
from engine.attention.cache import PagedKVCache
from engine.attention.groups import places_of
from engine.attention.layout import Plans
from engine.attention.reference import paged_attention
from engine.model.layers import AnyLinear, NormedAddition, RMSNorm, make_linear
from engine.model.parameters import (
    NORM_NAMES,
    attention_prefix,
    fused_qk_norm,
    fused_qkv,
    whole_qk_norms,
)
from engine.sharding.collectives import Collectives
from engine.sharding.layers import Adding, row_parallel
from engine.weights.weights import WeightSource

RopeOfSize = tuple[RopeConfig, int]  # and the size of a head


@dataclass(frozen=True, slots=True)
class LayerStep:
    """What layers share in a step: the rotations of each kind of rotary embedding; the factors of
    the queries [tokens, 1, 1], if they have any; what each layer reads of each token [tokens,
    layers, size], if it does; cache and plans of each group of equal layers; keys and values that
    later layers attend to as well, by the number of their ``KVLayer``."""

    rotations: Mapping[RopeOfSize, Tensor]
    query_factors: Tensor | None
    inputs: Tensor | None
    caches: tuple[PagedKVCache, ...]
    plans: tuple[Plans, ...]
    shared: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)


class Attention:
    """Rotary grouped-query attention of one layer."""

    def __init__(
        self, config: ModelConfig, source: WeightSource, layer: int, collectives: Collectives
    ) -> None:
        own, sizes = config.of_layer(layer), config.sizes_of(layer)
        self._number = config.kv_numbers[layer]
        self._place = places_of(config.kv_layers)[self._number]
        self._has_keys = sizes.keys_of is None
        self._is_shared = layer in {each.keys_of for each in config.own_sizes}
        self._num_heads = own.num_heads
        self._num_rotated = own.num_heads + (own.num_kv_heads if self._has_keys else 0)
        self._head_dim = own.head_dim
        self._rope = config.ropes[layer]
        self._window = config.windows[layer]
        self._scale = config.attention_scales[layer]
        prefix = attention_prefix(layer)
        self._qkv = make_linear(
            fused_qkv(config, source, layer, "weight"),
            fused_qkv(config, source, layer, "bias") if config.qkv_bias else None,
        )
        weight = source.tensor(prefix + "o_proj.weight")
        output = make_linear(
            weight, source.tensor(prefix + "o_proj.bias") if config.output_bias else None
        )
        name = NORM_NAMES[config.norms].attention_output
        self._output = addition(config, source, output, layer, name, collectives)
        eps = config.norm_eps
        self._qk_norm: RMSNorm | None = None
        self._whole_norms: tuple[RMSNorm, RMSNorm] | None = None
        self._value_norm: RMSNorm | None = None
        self._rotated_norm: RMSNorm | None = None
        if config.qk_norm is QKNorm.HEAD:
            norms = fused_qk_norm(config, source, layer)
            self._qk_norm = RMSNorm(norms, eps)
            if config.value_norm:
                self._value_norm = RMSNorm(torch.ones_like(norms[0]), eps)
        elif config.qk_norm is QKNorm.WHOLE:
            query, key = whole_qk_norms(config, source, layer)
            self._whole_norms = RMSNorm(query, eps), RMSNorm(key, eps)
        if config.rotated_norms and self._rope is not None:
            self._rotated_norm = RMSNorm(weight.new_ones(own.head_dim), eps)
        scaling = config.query_scaling
        self._scales_queries = not (scaling and scaling.is_unrotated and self._rope is not None)

    def add_to(self, residual: Tensor, x: Tensor, step: LayerStep, rows: Tensor | None) -> Tensor:
        """``residual`` plus what attention makes of ``x``, both [tokens, hidden]; of ``rows``
        only, if given."""
        qkv = self._qkv(x).view(x.shape[0], -1, self._head_dim)
        qk, value = qkv[:, : self._num_rotated], qkv[:, self._num_rotated :]
        if self._qk_norm is not None:
            qk = self._qk_norm(qk)
        elif self._whole_norms is not None:
            qk = self._normed(qk, self._whole_norms)
        if self._rope is not None:
            rotate_(qk, step.rotations[self._rope, self._head_dim])
        if self._rotated_norm is not None:
            qk = self._rotated_norm(qk)
        query, key = qk[:, : self._num_heads], qk[:, self._num_heads :]
        if step.query_factors is not None and self._scales_queries:
            query = (query * step.query_factors).to(query.dtype)
        if not self._has_keys:
            key, value = step.shared[self._number]
        elif self._value_norm is not None:
            value = self._value_norm(value)
        if self._is_shared:
            step.shared[self._number] = key, value
        # Keys and values of another layer are stored once more, where they already are.
        mixed = paged_attention(
            query,
            key,
            value,
            cache=step.caches[self._place.group],
            layer=self._place.index,
            plans=step.plans[self._place.group],
            window=self._window,
            scale=self._scale,
        )
        if rows is not None:
            residual, mixed = residual.index_select(0, rows), mixed.index_select(0, rows)
        return self._output.add_to(residual, mixed)

    def _normed(self, qk: Tensor, norms: tuple[RMSNorm, RMSNorm]) -> Tensor:
        parts = qk[:, : self._num_heads], qk[:, self._num_heads :]
        flat = [norm(part.flatten(1)) for norm, part in zip(norms, parts, strict=True)]
        return torch.cat(flat, dim=1).view(qk.shape)


def addition(
    config: ModelConfig,
    source: WeightSource,
    linear: AnyLinear,
    layer: int,
    norm: str | None,
    collectives: Collectives,
) -> Adding:
    """Return what adds ``linear`` to the residual stream; ``norm``: the name of its result's."""
    multiplier = config.multipliers.residual
    if norm is None and multiplier == 1:
        return row_parallel(linear, collectives)
    return NormedAddition(linear, make_norm(config, source, layer, norm), multiplier)


def make_norm(
    config: ModelConfig, source: WeightSource, layer: int, name: str | None
) -> RMSNorm | None:
    if name is None:
        return None
    return RMSNorm(source.tensor(f"model.layers.{layer}.{name}.weight"), config.norm_eps)
