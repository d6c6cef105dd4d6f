"""The Llama-like decoders: Llama, Mistral, Qwen2, Qwen3.

One architecture with switches: rotary grouped-query attention, RMS norms before each half of a
layer, a gated feed-forward. Qwen2 adds biases to the query, key and value projections; Qwen3
normalises each head's queries and keys; Mistral and Qwen may limit layers to a sliding window.
Sources: arXiv 2302.13971 (Llama), 2310.06825 (Mistral), 2407.10671 (Qwen2), 2505.09388 (Qwen3).
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.architecture.rope import RotaryEmbedding, pair_order, rotate_
from engine.attention.cache import PagedKVCache
from engine.attention.layout import Layout, Plans, expect
from engine.attention.reference import paged_attention
from engine.model.layers import ACTIVATIONS, RMSNorm, make_feed_forward, make_linear
from engine.sharding.collectives import ALONE, Collectives
from engine.sharding.layers import row_parallel, vocabulary_embedding
from engine.weights.stored import Shape
from engine.weights.weights import WeightSource

EMBEDDING = "model.embed_tokens.weight"
NORM = "model.norm.weight"
HEAD = "lm_head.weight"


def parameter_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Return the shape of every parameter by its checkpoint name, roughly in order of use."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, Shape] = {EMBEDDING: (config.vocab_size, hidden)}
    projections = {
        "self_attn.q_proj": (config.q_size, hidden, config.qkv_bias),
        "self_attn.k_proj": (config.kv_size, hidden, config.qkv_bias),
        "self_attn.v_proj": (config.kv_size, hidden, config.qkv_bias),
        "self_attn.o_proj": (hidden, config.q_size, config.output_bias),
        "mlp.gate_proj": (inner, hidden, config.mlp_bias),
        "mlp.up_proj": (inner, hidden, config.mlp_bias),
        "mlp.down_proj": (hidden, inner, config.mlp_bias),
    }
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "input_layernorm.weight"] = (hidden,)
        shapes[prefix + "post_attention_layernorm.weight"] = (hidden,)
        if config.qk_norm:
            shapes[prefix + "self_attn.q_norm.weight"] = (config.head_dim,)
            shapes[prefix + "self_attn.k_norm.weight"] = (config.head_dim,)
        for name, (rows, columns, bias) in projections.items():
            shapes[f"{prefix}{name}.weight"] = (rows, columns)
            if bias:
                shapes[f"{prefix}{name}.bias"] = (rows,)
    shapes[NORM] = (hidden,)
    if not config.tie_word_embeddings:
        shapes[HEAD] = (config.vocab_size, hidden)
    return shapes


class Attention:
    """Rotary grouped-query attention of one layer."""

    def __init__(
        self, config: ModelConfig, source: WeightSource, layer: int, collectives: Collectives
    ) -> None:
        self._layer = layer
        self._num_heads = config.num_heads
        self._num_rotated = config.num_heads + config.num_kv_heads
        self._head_dim = config.head_dim
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
        self._output = row_parallel(output, collectives)
        self._qk_norm = (
            RMSNorm(fused_qk_norm(config, source, prefix), config.norm_eps)
            if config.qk_norm
            else None
        )

    def add_to(
        self,
        residual: Tensor,
        x: Tensor,
        rotations: Tensor,
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
        rotate_(qk, rotations)
        mixed = paged_attention(
            qk[:, : self._num_heads],
            qk[:, self._num_heads :],
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
        self._down = row_parallel(down, collectives)
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
        prefix = f"model.layers.{layer}."
        eps = config.norm_eps
        self.input_norm = RMSNorm(source.tensor(prefix + "input_layernorm.weight"), eps)
        self.attention = Attention(config, source, layer, collectives)
        self.post_norm = RMSNorm(source.tensor(prefix + "post_attention_layernorm.weight"), eps)
        self.feed_forward = FeedForward(config, source, layer, collectives)


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
        if config.rope is None:
            raise ValueError("a Llama-like model needs rotary embeddings")
        embedding = source.tensor(EMBEDDING)
        self._embed = vocabulary_embedding(embedding, config.vocab_size, collectives)
        self._layers = [
            LlamaLayer(config, source, layer, collectives) for layer in range(config.num_layers)
        ]
        self._norm = RMSNorm(source.tensor(NORM), config.norm_eps)
        self._head = make_linear(embedding if config.tie_word_embeddings else source.tensor(HEAD))
        self._rope = RotaryEmbedding(config.rope, config.head_dim, max_positions, device)

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
        rotations = self._rope.rotations(positions)
        for layer in self._layers:
            kept = rows if layer is self._layers[-1] else None
            x = layer.attention.add_to(x, layer.input_norm(x), rotations, cache, plans, kept)
            x = layer.feed_forward.add_to(x, layer.post_norm(x))
        return self._norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._head(hidden).float()


def fused_qkv(config: ModelConfig, source: WeightSource, prefix: str, kind: str) -> Tensor:
    """Query, key and value projections' weights or biases stacked, with the elements of each
    query and key head in the order that ``engine.architecture.rope`` turns them."""
    order = pair_order(config.head_dim)

    def ordered(name: str) -> Tensor:
        rows = source.tensor(f"{prefix}{name}.{kind}")
        by_head = rows.view(-1, config.head_dim, *rows.shape[1:])
        return by_head.index_select(1, order.to(rows.device)).flatten(0, 1)

    parts = (ordered("q_proj"), ordered("k_proj"), source.tensor(f"{prefix}v_proj.{kind}"))
    return torch.cat(parts)


def fused_qk_norm(config: ModelConfig, source: WeightSource, prefix: str) -> Tensor:
    """[heads + kv_heads, head_dim]: each query and key head's norm weight, reordered likewise."""
    order = pair_order(config.head_dim)
    query = source.tensor(prefix + "q_norm.weight")
    key = source.tensor(prefix + "k_norm.weight")
    order = order.to(query.device)
    return torch.cat(
        (
            query[order].expand(config.num_heads, -1),
            key[order].expand(config.num_kv_heads, -1),
        )
    )
