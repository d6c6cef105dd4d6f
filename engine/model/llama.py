"""The Llama-like decoders (``engine.architecture.families``) in torch.

One architecture with switches: rotary grouped-query attention, RMS norms before or after each half
of a layer, a gated feed-forward or a mixture of them. It reads what ``ModelConfig`` says, never a
family's name. Sources: arXiv 2302.13971 (Llama), 2310.06825 (Mistral), 2407.10671 (Qwen2),
2505.09388 (Qwen3), 2501.00656 (OLMo 2), 2503.19786 (Gemma 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.architecture.features import Feature, NormPlace, QKNorm
from engine.architecture.rope import RopeConfig
from engine.architecture.rotary import RotaryEmbedding, pair_order, rotate_
from engine.attention.cache import PagedKVCache
from engine.attention.layout import Layout, Plans, expect
from engine.attention.reference import paged_attention
from engine.model.experts import MixtureOfExperts
from engine.model.layers import (
    ACTIVATIONS,
    AnyLinear,
    NormedAddition,
    RMSNorm,
    make_feed_forward,
    make_linear,
)
from engine.sharding.collectives import ALONE, Collectives
from engine.sharding.layers import Adding, row_parallel, vocabulary_embedding
from engine.weights.stored import Shape
from engine.weights.weights import WeightSource

EMBEDDING = "model.embed_tokens.weight"
NORM = "model.norm.weight"
HEAD = "lm_head.weight"

SERVED_BY_TORCH = frozenset(Feature) - {Feature.LEARNED_POSITIONS}


class NormNames(NamedTuple):
    """What the norms of a layer are called, by what they are applied to; None: there is none."""

    attention_input: str | None
    attention_output: str | None
    feed_input: str | None
    feed_output: str | None


NORM_NAMES = {
    NormPlace.BEFORE: NormNames("input_layernorm", None, "post_attention_layernorm", None),
    NormPlace.AFTER: NormNames(
        None, "post_attention_layernorm", None, "post_feedforward_layernorm"
    ),
    NormPlace.BOTH: NormNames(
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
}


def parameter_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Return the shape of every parameter, roughly in order of use, by the name that a checkpoint
    would have if all families used Llama's names (``engine.weights.families``)."""
    hidden = config.hidden_size
    shapes: dict[str, Shape] = {EMBEDDING: (config.vocab_size, hidden)}
    attention = {
        "self_attn.q_proj": (config.q_size, hidden, config.qkv_bias),
        "self_attn.k_proj": (config.kv_size, hidden, config.qkv_bias),
        "self_attn.v_proj": (config.kv_size, hidden, config.qkv_bias),
        "self_attn.o_proj": (hidden, config.q_size, config.output_bias),
    }
    qk_sizes = {
        QKNorm.NONE: (),
        QKNorm.HEAD: (config.head_dim, config.head_dim),
        QKNorm.WHOLE: (config.q_size, config.kv_size),
    }[config.qk_norm]
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        for norm in filter(None, NORM_NAMES[config.norms]):
            shapes[f"{prefix}{norm}.weight"] = (hidden,)
        for name, size in zip("qk", qk_sizes, strict=False):
            shapes[f"{prefix}self_attn.{name}_norm.weight"] = (size,)
        projections = attention | _feed_forward_shapes(config, layer)
        for name, (rows, columns, bias) in projections.items():
            shapes[f"{prefix}{name}.weight"] = (rows, columns)
            if bias:
                shapes[f"{prefix}{name}.bias"] = (rows,)
    shapes[NORM] = (hidden,)
    if not config.tie_word_embeddings:
        shapes[HEAD] = (config.vocab_size, hidden)
    return shapes


def _feed_forward_shapes(config: ModelConfig, layer: int) -> dict[str, tuple[int, int, bool]]:
    """Return (outputs, inputs, whether there are biases) by name."""
    hidden, experts = config.hidden_size, config.experts
    if experts is None or not experts.layers[layer]:
        inner, bias = config.intermediate_size, config.mlp_bias
        return {
            "mlp.gate_proj": (inner, hidden, bias),
            "mlp.up_proj": (inner, hidden, bias),
            "mlp.down_proj": (hidden, inner, bias),
        }
    shapes = {"mlp.gate": (experts.count, hidden, False)}
    for number in range(experts.count):
        prefix = f"mlp.experts.{number}."
        shapes[prefix + "gate_proj"] = (experts.inner, hidden, False)
        shapes[prefix + "up_proj"] = (experts.inner, hidden, False)
        shapes[prefix + "down_proj"] = (hidden, experts.inner, False)
    return shapes


class Turning(NamedTuple):
    """How a step's queries and keys turn: the rotations of each kind of rotary embedding; and the
    factors of the queries [tokens, 1, 1], if they have any."""

    rotations: Mapping[RopeConfig, Tensor]
    query_factors: Tensor | None


class Attention:
    """Rotary grouped-query attention of one layer."""

    def __init__(
        self, config: ModelConfig, source: WeightSource, layer: int, collectives: Collectives
    ) -> None:
        self._layer = layer
        self._num_heads = config.num_heads
        self._num_rotated = config.num_heads + config.num_kv_heads
        self._head_dim = config.head_dim
        self._rope = config.ropes[layer]
        self._window = config.sliding_windows[layer]
        self._scale = config.attention_scales[layer]
        prefix = f"model.layers.{layer}.self_attn."
        self._qkv = make_linear(
            fused_qkv(config, source, prefix, "weight"),
            fused_qkv(config, source, prefix, "bias") if config.qkv_bias else None,
        )
        output = make_linear(
            source.tensor(prefix + "o_proj.weight"),
            source.tensor(prefix + "o_proj.bias") if config.output_bias else None,
        )
        name = NORM_NAMES[config.norms].attention_output
        self._output = _addition(config, source, output, layer, name, collectives)
        eps = config.norm_eps
        self._qk_norm: RMSNorm | None = None
        self._whole_norms: tuple[RMSNorm, RMSNorm] | None = None
        if config.qk_norm is QKNorm.HEAD:
            self._qk_norm = RMSNorm(fused_qk_norm(config, source, prefix), eps)
        elif config.qk_norm is QKNorm.WHOLE:
            query, key = whole_qk_norms(config, source, prefix)
            self._whole_norms = RMSNorm(query, eps), RMSNorm(key, eps)

    def add_to(
        self,
        residual: Tensor,
        x: Tensor,
        turning: Turning,
        cache: PagedKVCache,
        plans: Plans,
        rows: Tensor | None,
    ) -> Tensor:
        """``residual`` plus what attention makes of ``x``, both [tokens, hidden]; of ``rows``
        only, if given."""
        qkv = self._qkv(x).view(x.shape[0], -1, self._head_dim)
        qk, value = qkv[:, : self._num_rotated], qkv[:, self._num_rotated :]
        if self._qk_norm is not None:
            qk = self._qk_norm(qk)
        elif self._whole_norms is not None:
            qk = self._normed(qk, self._whole_norms)
        if self._rope is not None:
            rotate_(qk, turning.rotations[self._rope])
        query, key = qk[:, : self._num_heads], qk[:, self._num_heads :]
        if turning.query_factors is not None:
            query = query * turning.query_factors
        mixed = paged_attention(
            query,
            key,
            value,
            cache=cache,
            layer=self._layer,
            plans=plans,
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


def _addition(
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


class FeedForward:
    """``down(activation(gate(x)) * up(x))``, gate and up fused."""

    def __init__(
        self, config: ModelConfig, source: WeightSource, layer: int, collectives: Collectives
    ) -> None:
        prefix = f"model.layers.{layer}.mlp."
        fused = ("gate_proj.", "up_proj.")
        self._inner = config.intermediate_size
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
        name = NORM_NAMES[config.norms].feed_output
        self._down = _addition(config, source, down, layer, name, collectives)
        self._activation = ACTIVATIONS[config.activation]

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        gate_up = self._gate_up(x)
        gate = self._activation(gate_up[:, : self._inner])
        return self._down.add_to(residual, gate.mul_(gate_up[:, self._inner :]))


class LlamaLayer:
    """Attention and feed-forward, each on a normalised copy of the residual stream."""

    def __init__(
        self, config: ModelConfig, source: WeightSource, layer: int, collectives: Collectives
    ) -> None:
        names = NORM_NAMES[config.norms]
        self._attention_norm = make_norm(config, source, layer, names.attention_input)
        self._attention = Attention(config, source, layer, collectives)
        self._feed_norm = make_norm(config, source, layer, names.feed_input)
        self._feed_forward = (
            MixtureOfExperts(config, source, f"model.layers.{layer}.mlp.", collectives)
            if config.has_experts(layer)
            else FeedForward(config, source, layer, collectives)
        )

    def __call__(
        self, x: Tensor, turning: Turning, cache: PagedKVCache, plans: Plans, rows: Tensor | None
    ) -> Tensor:
        """[tokens, hidden] -> the same, of ``rows`` only, if given."""
        normed = x if self._attention_norm is None else self._attention_norm(x)
        x = self._attention.add_to(x, normed, turning, cache, plans, rows)
        return self._feed_forward.add_to(x, x if self._feed_norm is None else self._feed_norm(x))


class LlamaModel:
    """A Llama-like decoder (see ``engine.model.decoder.Decoder``).

    One rank of several is given its own part of the model: ``config`` with its heads and inner
    elements (``Shard.config``), a ``source`` of its weights, and the ``collectives``, by which the
    parts become one.
    """

    layout_type = Plans

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
        embedding = source.tensor(EMBEDDING)
        self._multiplier = embedding_multiplier(config, embedding.dtype)
        self._logit_divisor = config.multipliers.logits
        self._embed = vocabulary_embedding(embedding, config.vocab_size, collectives)
        self._layers = [
            LlamaLayer(config, source, layer, collectives) for layer in range(config.num_layers)
        ]
        self._norm = RMSNorm(source.tensor(NORM), config.norm_eps)
        self._head = make_linear(embedding if config.tie_word_embeddings else source.tensor(HEAD))
        self._ropes = {
            rope: RotaryEmbedding(rope, config.head_dim, max_positions, device)
            for rope in config.ropes
            if rope is not None
        }
        self._query_factors = query_factors(config, max_positions, device)

    def hidden_states(
        self,
        token_ids: Tensor,
        positions: Tensor,
        cache: PagedKVCache,
        layout: Layout,
        rows: Tensor | None = None,
    ) -> Tensor:
        plans = expect(Plans, layout)
        x = self._embed(token_ids)
        if self._multiplier != 1:
            x *= self._multiplier
        turning = self._turning(positions, x.dtype)
        for layer in self._layers:
            kept = rows if layer is self._layers[-1] else None
            x = layer(x, turning, cache, plans, kept)
        return self._norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        logits = self._head(hidden).float()
        return logits if self._logit_divisor == 1 else logits / self._logit_divisor

    def _turning(self, positions: Tensor, dtype: torch.dtype) -> Turning:
        factors = self._query_factors
        if factors is not None:
            factors = factors.index_select(0, positions).to(dtype).view(-1, 1, 1)
        rotations = {rope: table.rotations(positions) for rope, table in self._ropes.items()}
        return Turning(rotations, factors)


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
    factors = [scaling.factor(position) for position in range(max_positions)]
    return torch.tensor(factors, dtype=torch.float32, device=device)


def fused_qkv(config: ModelConfig, source: WeightSource, prefix: str, kind: str) -> Tensor:
    """Query, key and value projections' weights or biases stacked, with the elements of each
    query and key head in the order that ``engine.architecture.rope`` turns them."""
    order = pair_order(config.head_dim, config.rotary_dim)

    def ordered(name: str) -> Tensor:
        rows = source.tensor(f"{prefix}{name}.{kind}")
        by_head = rows.view(-1, config.head_dim, *rows.shape[1:])
        return by_head.index_select(1, order.to(rows.device)).flatten(0, 1)

    parts = (ordered("q_proj"), ordered("k_proj"), source.tensor(f"{prefix}v_proj.{kind}"))
    return torch.cat(parts)


def fused_qk_norm(config: ModelConfig, source: WeightSource, prefix: str) -> Tensor:
    """[heads + kv_heads, head_dim]: each query and key head's norm weight, reordered likewise."""
    order = pair_order(config.head_dim, config.rotary_dim)
    query = source.tensor(prefix + "q_norm.weight")
    key = source.tensor(prefix + "k_norm.weight")
    order = order.to(query.device)
    return torch.cat(
        (
            query[order].expand(config.num_heads, -1),
            key[order].expand(config.num_kv_heads, -1),
        )
    )


def whole_qk_norms(config: ModelConfig, source: WeightSource, prefix: str) -> tuple[Tensor, Tensor]:
    """[heads * head_dim] and [kv_heads * head_dim]: the weights of norms over all heads of a token,
    reordered likewise."""
    order = pair_order(config.head_dim, config.rotary_dim)

    def ordered(name: str) -> Tensor:
        weight = source.tensor(f"{prefix}{name}_norm.weight")
        return weight.view(-1, config.head_dim)[:, order.to(weight.device)].flatten()

    return ordered("q"), ordered("k")
