"""Mixtures of experts in torch (arXiv 2101.03961; 2401.04088, Mixtral)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.architecture.features import Experts
from engine.model.layers import ACTIVATIONS, AnyLinear, make_linear
from engine.sharding.collectives import ALONE, Collectives
from engine.weights.weights import WeightSource


class _Expert(NamedTuple):
    """``gate_up``: [2 * inner, hidden]."""

    gate_up: AnyLinear
    down: AnyLinear


class MixtureOfExperts:
    """Adds to each token the sum of what its experts make of it, weighted by the router. Each of
    several ranks has a part of every expert's inner elements."""

    def __init__(
        self,
        config: ModelConfig,
        source: WeightSource,
        prefix: str,
        collectives: Collectives = ALONE,
    ) -> None:
        if config.experts is None:
            raise ValueError("the model has no experts")
        self._config = config.experts
        self._collectives = collectives
        self._multiplier = config.multipliers.residual
        self._activation = ACTIVATIONS[config.activation]
        self._router = source.tensor(router_name(prefix))
        self._experts = [
            _expert(source, expert_prefix(prefix, number)) for number in range(self._config.count)
        ]
        self._shared: _Expert | None = None
        if self._config.has_shared:
            self._shared = _expert(source, f"{prefix}shared_expert.")

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """``residual`` [rows, hidden], which may be overwritten, plus the mixture of ``x``."""
        out = self.mixture(x, *self.route(x))
        if self._shared is not None:
            out += self._apply(self._shared, x)
        return residual.add_(self._collectives.all_reduce(out), alpha=self._multiplier)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Choose the experts of each row (see ``route``)."""
        return route(x @ self._router.t(), self._config)

    def mixture(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Return the sum of what the ``chosen`` experts make of each row, which their weights
        multiply before or after that."""
        out = torch.zeros_like(x)
        for number in set(chosen.flatten().tolist()):
            rows, places = torch.where(chosen == number)
            own = weights[rows, places].unsqueeze(1).to(x.dtype)
            read = x.index_select(0, rows)
            if self._config.scales_inputs:
                found = self._apply(self._experts[number], read * own)
            else:
                found = self._apply(self._experts[number], read) * own
            out.index_add_(0, rows, found)
        return out

    def _apply(self, expert: _Expert, x: Tensor) -> Tensor:
        gate_up = expert.gate_up(x)
        gate = self._activation(gate_up[:, : self._config.inner])
        return expert.down(gate.mul_(gate_up[:, self._config.inner :]))


def router_name(prefix: str) -> str:
    """``prefix``: of the layer's feed-forward."""
    return prefix + "gate.weight"


def router_names(config: ModelConfig) -> frozenset[str]:
    """Return the names of all routers' weights."""
    layers = [layer for layer in range(config.num_layers) if config.has_experts(layer)]
    return frozenset(router_name(f"model.layers.{layer}.mlp.") for layer in layers)


def expert_names(config: ModelConfig) -> frozenset[str]:
    """Return the names of all experts' weights."""
    count = 0 if config.experts is None else config.experts.count
    return frozenset(
        f"{expert_prefix(f'model.layers.{layer}.mlp.', number)}{part}_proj.weight"
        for layer in range(config.num_layers)
        if config.has_experts(layer)
        for number in range(count)
        for part in ("gate", "up", "down")
    )


def expert_prefix(prefix: str, number: int) -> str:
    return f"{prefix}experts.{number}."


def route(scores: Tensor, experts: Experts) -> tuple[Tensor, Tensor]:
    """Return each row's experts, int64 [rows, top_k], and their weights in float32, for the
    router's ``scores`` [rows, experts]."""
    if experts.scales_inputs:
        best, chosen = scores.topk(experts.top_k, dim=1)
        return chosen, best.float().sigmoid()
    weights, chosen = scores.float().softmax(dim=1).topk(experts.top_k, dim=1)
    if experts.renormalised:
        weights = weights / weights.sum(dim=1, keepdim=True)
    return chosen, weights


def _expert(source: WeightSource, prefix: str) -> _Expert:
    gate_up = [source.tensor(f"{prefix}{name}_proj.weight") for name in ("gate", "up")]
    return _Expert(
        make_linear(torch.cat(gate_up)), make_linear(source.tensor(prefix + "down_proj.weight"))
    )
