"""The Llama-like decoders (``engine.architecture.families``) in torch.

One architecture with switches: rotary grouped-query attention, RMS norms before or after each half
of a layer, a gated feed-forward or a mixture of them. It reads what ``ModelConfig`` says, never a
family's name. Sources: arXiv 2302.13971 (Llama), 2310.06825 (Mistral), 2407.10671 (Qwen2),
2505.09388 (Qwen3), 2501.00656 (OLMo 2), 2503.19786 (Gemma 3); transformers (Gemma 4).
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.architecture.features import Feature
from engine.architecture.rotary import RotaryEmbedding
from engine.attention.cache import PagedKVCache
from engine.attention.groups import GroupedKVCache, groups_of
from engine.attention.layout import GroupedPlans, Layout, Plans, expect
from engine.model.attention import Attention, LayerStep, RopeOfSize, addition, make_norm
from engine.model.experts import MixtureOfExperts
from engine.model.layer_inputs import LayerInput, TokenInputs
from engine.model.layers import ACTIVATIONS, RMSNorm, make_feed_forward, make_linear
from engine.model.parameters import (
    EMBEDDING,
    EXPERT_SCALES,
    HEAD,
    LAYER_SCALE,
    NORM,
    NORM_NAMES,
    PARALLEL_NAMES,
    router_norm,
)
from engine.sharding.collectives import ALONE, Collectives
from engine.sharding.layers import Adding, vocabulary_embedding
from engine.weights.weights import WeightSource

SERVED_BY_TORCH = frozenset(Feature) - {Feature.LEARNED_POSITIONS}


class FeedForward:
    """``down(activation(gate(x)) * up(x))``, gate and up fused."""

    def __init__(
        self,
        config: ModelConfig,
        source: WeightSource,
        layer: int,
        collectives: Collectives,
        output_norm: str | None,
    ) -> None:
        """``output_norm``: its name, if there is one."""
        prefix = f"model.layers.{layer}.mlp."
        fused = ("gate_proj.", "up_proj.")
        self._inner = config.of_layer(layer).intermediate_size
        self._gate_up = make_feed_forward(
            torch.cat([source.tensor(f"{prefix}{name}weight") for name in fused]),
            torch.cat([source.tensor(f"{prefix}{name}bias") for name in fused])
            if config.mlp_bias
            else None,
        )
        down = make_feed_forward(
            source.tensor(prefix + "down_proj.weight"),
            source.tensor(prefix + "down_proj.bias") if config.mlp_bias else None,
        )
        self._down = addition(config, source, down, layer, output_norm, collectives)
        self._activation = ACTIVATIONS[config.activation]

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        gate_up = self._gate_up(x)
        gate = self._activation(gate_up[:, : self._inner])
        return self._down.add_to(residual, gate.mul_(gate_up[:, self._inner :]))


class ParallelFeedForward:
    """A feed-forward and a mixture of experts, each with separate norms. The router reads the
    residual stream, and the mixture what its norm makes of it."""

    def __init__(
        self, config: ModelConfig, source: WeightSource, layer: int, collectives: Collectives
    ) -> None:
        def norm(name: str) -> RMSNorm:
            found = make_norm(config, source, layer, name)
            assert found is not None
            return found

        prefix = f"model.layers.{layer}."
        names, output = PARALLEL_NAMES, NORM_NAMES[config.norms].feed_output
        assert output is not None
        self._feed_forward = FeedForward(config, source, layer, collectives, names.feed_output)
        self._router_norm = RMSNorm(router_norm(config, source, layer), config.norm_eps)
        self._experts_input = norm(names.experts_input)
        self._experts = MixtureOfExperts(config, source, f"{prefix}mlp.", collectives)
        self._expert_scales = source.tensor(prefix + EXPERT_SCALES).float()
        self._experts_output = norm(names.experts_output)
        self._output = norm(output)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        chosen, weights = self._experts.route(self._router_norm(residual))
        weights = weights * self._expert_scales[chosen]
        mixed = self._experts.mixture(self._experts_input(residual), chosen, weights)
        out = self._feed_forward.add_to(self._experts_output(mixed), x)
        return residual.add_(self._output(out))


class LlamaLayer:
    """Attention and feed-forward, each on a normalised copy of the residual stream."""

    def __init__(
        self, config: ModelConfig, source: WeightSource, layer: int, collectives: Collectives
    ) -> None:
        names = NORM_NAMES[config.norms]
        self._number = layer
        self._attention_norm = make_norm(config, source, layer, names.attention_input)
        self._attention = Attention(config, source, layer, collectives)
        self._feed_norm = make_norm(config, source, layer, names.feed_input)
        self._feed_forward: Adding
        if config.has_parallel_experts(layer):
            self._feed_forward = ParallelFeedForward(config, source, layer, collectives)
        elif config.has_experts(layer):
            prefix = f"model.layers.{layer}.mlp."
            self._feed_forward = MixtureOfExperts(config, source, prefix, collectives)
        else:
            self._feed_forward = FeedForward(config, source, layer, collectives, names.feed_output)
        self._input = None if config.layer_inputs is None else LayerInput(config, source, layer)
        self._scale: Tensor | None = None
        if config.layer_scales:
            self._scale = source.tensor(f"model.layers.{layer}.{LAYER_SCALE}")

    def __call__(self, x: Tensor, step: LayerStep, rows: Tensor | None) -> Tensor:
        """[tokens, hidden] -> the same, of ``rows`` only, if given."""
        normed = x if self._attention_norm is None else self._attention_norm(x)
        x = self._attention.add_to(x, normed, step, rows)
        x = self._feed_forward.add_to(x, x if self._feed_norm is None else self._feed_norm(x))
        if self._input is not None and step.inputs is not None:
            own = step.inputs[:, self._number]
            x = self._input.add_to(x, own if rows is None else own.index_select(0, rows))
        return x if self._scale is None else x.mul_(self._scale)


class LlamaModel:
    """A Llama-like decoder (see ``engine.model.decoder.Decoder``).

    One rank of several is given its own part of the model: ``config`` with its heads and inner
    elements (``Shard.config``), a ``source`` of its weights, and the ``collectives``, by which the
    parts become one.
    """

    def __init__(
        self,
        config: ModelConfig,
        source: WeightSource,
        *,
        max_positions: int,
        device: torch.device,
        collectives: Collectives = ALONE,
    ) -> None:
        if not config.features <= SERVED_BY_TORCH:
            raise ValueError("learned positions are not those of a Llama-like model")
        self.layout_type: type[Layout] = (
            Plans if len(groups_of(config.kv_layers)) == 1 else GroupedPlans
        )
        embedding = source.tensor(EMBEDDING)
        self._multiplier = embedding_multiplier(config, embedding.dtype)
        self._logit_divisor = config.multipliers.logits
        self._logit_cap = config.logit_cap
        self._embed = vocabulary_embedding(embedding, config.vocab_size, collectives)
        self._inputs = None if config.layer_inputs is None else TokenInputs(config, source)
        self._layers = [
            LlamaLayer(config, source, layer, collectives) for layer in range(config.num_layers)
        ]
        self._norm = RMSNorm(source.tensor(NORM), config.norm_eps)
        self._head = make_linear(embedding if config.tie_word_embeddings else source.tensor(HEAD))
        self._ropes = {
            (rope, size): RotaryEmbedding(rope, size, max_positions, device)
            for rope, size in ropes_of_sizes(config)
        }
        self._query_factors = query_factors(config, max_positions, device)
        self._rounds_factors = not (config.query_scaling and config.query_scaling.is_unrotated)

    def hidden_states(
        self,
        token_ids: Tensor,
        positions: Tensor,
        cache: PagedKVCache | GroupedKVCache,
        layout: Layout,
        rows: Tensor | None = None,
    ) -> Tensor:
        caches, plans = _by_group(cache, layout)
        x = self._embed(token_ids)
        if self._multiplier != 1:
            x *= self._multiplier
        factors = self._query_factors
        if factors is not None:
            factors = factors.index_select(0, positions).view(-1, 1, 1)
            factors = factors.to(x.dtype) if self._rounds_factors else factors
        step = LayerStep(
            {rope: table.rotations(positions) for rope, table in self._ropes.items()},
            factors,
            None if self._inputs is None else self._inputs(token_ids, x),
            caches,
            plans,
        )
        for layer in self._layers:
            kept = rows if layer is self._layers[-1] else None
            x = layer(x, step, kept)
        return self._norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        logits = self._head(hidden).float()
        if self._logit_divisor != 1:
            logits = logits / self._logit_divisor
        return logits if self._logit_cap is None else capped(logits, self._logit_cap)


def _by_group(
    cache: PagedKVCache | GroupedKVCache, layout: Layout
) -> tuple[tuple[PagedKVCache, ...], tuple[Plans, ...]]:
    """Return cache and plans of each group of equal layers."""
    if isinstance(cache, GroupedKVCache):
        return cache.groups, expect(GroupedPlans, layout).groups
    return (cache,), (expect(Plans, layout),)


def capped(logits: Tensor, cap: float) -> Tensor:
    """Return ``cap * tanh(logits / cap)``, in their place."""
    return logits.div_(cap).tanh_().mul_(cap)


def ropes_of_sizes(config: ModelConfig) -> list[RopeOfSize]:
    """Return the kinds of rotary embeddings in the order of the first layer of each."""
    found = [
        (rope, config.of_layer(layer).head_dim)
        for layer, rope in enumerate(config.ropes)
        if rope is not None
    ]
    return list(dict.fromkeys(found))


def embedding_multiplier(config: ModelConfig, dtype: torch.dtype) -> float:
    """Return what embeddings of ``dtype`` are multiplied by."""
    multiplier = config.multipliers.embedding
    if not config.multipliers.rounds_embedding:
        return multiplier
    return torch.tensor(multiplier, dtype=dtype).item()


def query_factors(config: ModelConfig, max_positions: int, device: torch.device) -> Tensor | None:
    """Return what queries are multiplied by, float32 [positions]; None: by nothing."""
    scaling = config.query_scaling
    if scaling is None:
        return None
    steps = (torch.arange(max_positions) + scaling.offset) // scaling.positions
    factors = [scaling.factor(step) for step in range(int(steps[-1]) + 1)]
    return torch.tensor(factors, dtype=torch.float32).index_select(0, steps).to(device)
