"""The feed-forward half of a layer: dense, or a mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.architecture.features import Experts
from engine.gpu.kernels.activation import gated
from engine.gpu.kernels.experts import experts_of_few, experts_of_many
from engine.gpu.kernels.launch import FEW_ROWS, rows_per_expert_tile
from engine.gpu.kernels.routing import choose_experts, group
from engine.gpu.kernels.skinny import Norm, skinny_product
from engine.gpu.matrices import KernelMatrices
from engine.gpu.projection import Projection
from engine.model.experts import expert_prefix, router_name
from engine.weights.weights import WeightSource


class AnyFeedForward(Protocol):
    """What follows attention in a layer. One rank of several computes its part of the sum."""

    def __call__(self, x: Tensor) -> Tensor:
        """Return what is added to the residual for ``x`` [rows, hidden], which is normed."""
        ...

    def of_few(self, x: Tensor, norm: Norm, residual: Tensor | None) -> Tensor:
        """Return the same for the norm of ``x``, at most ``FEW_ROWS`` rows, plus ``residual``, if
        given, which is overwritten and may be ``x``."""
        ...


@dataclass(frozen=True, slots=True)
class Dense:
    gate_up: Projection
    down: Projection
    activation: str

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(gated(self.gate_up(x), self.activation))

    def of_few(self, x: Tensor, norm: Norm, residual: Tensor | None) -> Tensor:
        inside = self.gate_up.of_few(x, norm=norm, activation=self.activation)
        return self.down.of_few(inside, residual=residual)


@dataclass(frozen=True, slots=True)
class Mixture:
    """``router`` [experts, hidden]; ``gate_up`` [experts, 2 * inner, hidden], gates first; ``down``
    [experts, hidden, inner]."""

    config: Experts
    router: Tensor
    gate_up: Tensor
    down: Tensor
    activation: str

    def __call__(self, x: Tensor) -> Tensor:
        chosen, weights = self._route(x @ self.router.t())
        if x.shape[0] <= FEW_ROWS:
            return experts_of_few(
                x, self.gate_up, self.down, chosen, weights, activation=self.activation
            )
        rows = rows_per_expert_tile(chosen.numel(), self.config.count)
        groups = group(chosen, self.config.count, rows)
        return experts_of_many(
            x, self.gate_up, self.down, groups, weights, activation=self.activation
        )

    def of_few(self, x: Tensor, norm: Norm, residual: Tensor | None) -> Tensor:
        chosen, weights = self._route(skinny_product(x, self.router, norm=norm))
        return experts_of_few(
            x,
            self.gate_up,
            self.down,
            chosen,
            weights,
            norm=norm,
            activation=self.activation,
            residual=residual,
        )

    def _route(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        return choose_experts(scores, self.config.top_k, renormalised=self.config.renormalised)


def load_feed_forward(
    config: ModelConfig, matrices: KernelMatrices, layer: int, *, deterministic: bool
) -> AnyFeedForward:
    prefix = f"model.layers.{layer}.mlp."
    if config.experts is not None and config.has_experts(layer):
        return _mixture(config, config.experts, matrices.source, prefix)

    def gate_up(kind: str) -> list[str]:
        return [f"{prefix}{name}_proj.{kind}" for name in ("gate", "up")]

    biases = [matrices.source.tensor(name) for name in gate_up("bias")] if config.mlp_bias else []
    return Dense(
        Projection(
            matrices.below_each_other(gate_up("weight")),
            torch.cat(biases) if biases else None,
            deterministic,
        ),
        Projection.load(matrices, prefix + "down_proj", config.mlp_bias, deterministic),
        config.activation,
    )


def _mixture(config: ModelConfig, experts: Experts, source: WeightSource, prefix: str) -> Mixture:
    """Load each expert into its place, so that no more than one is in memory twice."""
    router = source.tensor(router_name(prefix))
    hidden, inner = router.shape[1], experts.inner
    gate_up = router.new_empty(experts.count, 2 * inner, hidden)
    down = router.new_empty(experts.count, hidden, inner)
    for number in range(experts.count):
        own = expert_prefix(prefix, number)
        gate_up[number, :inner] = source.tensor(own + "gate_proj.weight")
        gate_up[number, inner:] = source.tensor(own + "up_proj.weight")
        down[number] = source.tensor(own + "down_proj.weight")
    return Mixture(experts, router, gate_up, down, config.activation)
