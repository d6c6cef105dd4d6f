"""A Llama-like decoder that ``forward.c`` runs on a CPU, one call per step.

Weights and the KV cache are float32 or bfloat16."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.architecture.features import Experts, Feature, QKNorm
from engine.architecture.rotary import RotaryEmbedding
from engine.attention.cache import PagedKVCache
from engine.attention.layout import Layout, Rows, expect
from engine.cpu.blocks import packed_blocks
from engine.cpu.library import BatchStruct, LayerStruct, Library, LinearStruct, ModelStruct
from engine.cpu.matrices import Matrix, embedded, fused_qkv_matrices, gate_up_matrix, stored_matrix
from engine.cpu.packed import PackedWeight, WeightKind, interleaved
from engine.model.experts import expert_prefix, router_name
from engine.model.llama import (
    EMBEDDING,
    HEAD,
    NORM,
    NORM_NAMES,
    embedding_multiplier,
    fused_qk_norm,
    fused_qkv,
    query_factors,
    whole_qk_norms,
)
from engine.weights.blocks import BlockRows
from engine.weights.weights import WeightSource

# What the compiled pass computes besides a plain Llama; torch computes a model with anything else.
SERVED_BY_C = frozenset(Feature) - {Feature.LEARNED_POSITIONS}
# By activation: the outcome in linear.h.
_GATED = {"silu": 2, "gelu_tanh": 3}
_HEAD_UNIT = 16  # UNIT in attention.h
_CACHE_KINDS = {torch.float32: WeightKind.FLOAT32, torch.bfloat16: WeightKind.BFLOAT16}


def compiled_pass_fits(config: ModelConfig, lanes: int) -> bool:
    """Whether the compiled pass supports this model and its sizes fill whole vectors."""
    sizes = [config.hidden_size, config.intermediate_size]
    if config.experts is not None:
        sizes.append(config.experts.inner)
    return (
        config.features <= SERVED_BY_C
        and config.activation in _GATED
        and not any(size % lanes for size in sizes)
        and config.head_dim % _HEAD_UNIT == 0
    )


class CompiledLlama:
    """See ``engine.model.decoder.Decoder``. Computes what ``LlamaModel`` does in float32, up to
    rounding; with ``bf16_products`` the inputs of each linear map are rounded to bfloat16."""

    layout_type = Rows

    def __init__(
        self,
        config: ModelConfig,
        source: WeightSource,
        library: Library,
        *,
        max_positions: int,
        threads: int,
        bf16_products: bool = False,
        deterministic: bool = False,
    ) -> None:
        """Matrices that ``source`` has in few bits stay so. ``bf16_products``: for matrices of
        bfloat16 values, round the inputs and multiply in hardware; ``library`` must support it.
        ``deterministic``: a token's result is the same to the bit in any batch, however its prompt
        is divided; single tokens are slower."""
        if not compiled_pass_fits(config, library.lanes):
            raise ValueError("the compiled pass does not compute this model")
        if bf16_products and not library.bf16_products:
            raise ValueError(f"{library.path} has no products of bfloat16")
        self._library = library
        self._team = library.team(threads)
        self._threads = threads
        self._hidden = config.hidden_size
        self._bf16_products = bf16_products
        embedding = stored_matrix(source, EMBEDDING)
        self._multiplier = embedding_multiplier(config, _dtype(embedding))
        tied = config.tie_word_embeddings
        self._embedding: PackedWeight | Tensor = (
            embedding
            if isinstance(embedding, Tensor) and not tied
            else self._weight(embedding, None)
        )
        del embedding  # its memory, if it is packed
        self._logit_divisor = config.multipliers.logits
        cpu = torch.device("cpu")
        self._kinds = list(dict.fromkeys(rope for rope in config.ropes if rope))
        self._ropes = [
            RotaryEmbedding(rope, config.head_dim, max_positions, cpu) for rope in self._kinds
        ]
        self._query_factors = query_factors(config, max_positions, cpu)
        self._kept_alive: list[Any] = []  # what structures point to
        self._layers = (LayerStruct * config.num_layers)(
            *(self._layer(config, source, layer) for layer in range(config.num_layers))
        )
        self._head = (
            self._embedding
            if tied and isinstance(self._embedding, PackedWeight)
            else self._weight(stored_matrix(source, HEAD), None)
        )
        norm = self._floats(source.tensor(NORM))
        self._model = _model_struct(config, self._layers, norm, deterministic=deterministic)
        self._cache: PagedKVCache | None = None
        self._scratch = torch.empty(0)

    def hidden_states(
        self,
        token_ids: Tensor,
        positions: Tensor,
        cache: PagedKVCache,
        layout: Layout,
        rows: Tensor | None = None,
    ) -> Tensor:
        tables = expect(Rows, layout)
        if cache is not self._cache:
            self._attach(cache)
        count = token_ids.shape[0]
        kept = torch.arange(count) if rows is None else rows
        x = embedded(self._embedding, self._library, token_ids)
        if self._multiplier != 1:
            x *= self._multiplier
        rotations = self._rotations(positions)
        factors = self._query_factors
        if factors is not None:
            factors = factors.index_select(0, positions)
        out = torch.empty(kept.shape[0], self._hidden)
        longest = tables.longest
        batch = BatchStruct(
            count,
            kept.shape[0],
            tables.blocks.shape[1],
            longest,
            x.data_ptr(),
            rotations.data_ptr(),
            None if factors is None else factors.data_ptr(),
            positions.data_ptr(),
            tables.sequences.data_ptr(),
            tables.blocks.data_ptr(),
            kept.data_ptr(),
            out.data_ptr(),
            self._scratch_for(count, longest),
        )
        self._library.forward(self._team, self._model, batch)
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        out = torch.empty(hidden.shape[0], self._head.outputs)
        hidden = hidden.contiguous()
        self._library.linear(
            self._team, self._head.struct, hidden.data_ptr(), hidden.shape[0], out.data_ptr()
        )
        return out if self._logit_divisor == 1 else out.div_(self._logit_divisor)

    def _rotations(self, positions: Tensor) -> Tensor:
        """float32 [kinds, tokens, head_dim]: those of each kind of rotary embedding."""
        found = [torch.view_as_real(rope.rotations(positions)) for rope in self._ropes]
        if len(found) == 1:
            return found[0].contiguous()
        return torch.cat(found) if found else torch.empty(0)

    def _layer(self, config: ModelConfig, source: WeightSource, layer: int) -> LayerStruct:
        attention = f"model.layers.{layer}.self_attn."
        rope = config.ropes[layer]
        return LayerStruct(
            *self._qkv(config, source, attention),
            self._packed(
                stored_matrix(source, attention + "o_proj.weight"),
                source.tensor(attention + "o_proj.bias") if config.output_bias else None,
                config.multipliers.residual,
            ),
            *(
                self._experts(config.experts, source, f"model.layers.{layer}.mlp.")
                if config.experts is not None and config.experts.layers[layer]
                else self._feed_forward(config, source, f"model.layers.{layer}.mlp.")
            ),
            *(
                name and self._floats(source.tensor(f"model.layers.{layer}.{name}.weight"))
                for name in NORM_NAMES[config.norms]
            ),
            *self._qk_norms(config, source, attention),
            None,
            config.sliding_windows[layer] or 0,
            -1 if rope is None else self._kinds.index(rope),
            config.attention_scales[layer],
        )

    def _qkv(
        self, config: ModelConfig, source: WeightSource, prefix: str
    ) -> tuple[ctypes.Structure, ctypes.Structure]:
        """Return the map of query, key and value; and one of value, if it is apart."""
        matrices = fused_qkv_matrices(config, source, prefix)
        bias = fused_qkv(config, source, prefix, "bias") if config.qkv_bias else None
        if len(matrices) == 1:
            return self._packed(matrices[0], bias), LinearStruct()
        both, value = matrices
        if bias is None:
            return self._packed(both, None), self._packed(value, None)
        first, last = bias[: both.shape[0]], bias[both.shape[0] :]
        return self._packed(both, first), self._packed(value, last)

    def _qk_norms(
        self, config: ModelConfig, source: WeightSource, prefix: str
    ) -> tuple[int | None, int | None]:
        match config.qk_norm:
            case QKNorm.NONE:
                return None, None
            case QKNorm.HEAD:
                return self._floats(fused_qk_norm(config, source, prefix)), None
            case QKNorm.WHOLE:
                return None, self._floats(torch.cat(whole_qk_norms(config, source, prefix)))

    def _experts(self, experts: Experts, source: WeightSource, prefix: str) -> tuple[Any, ...]:
        """Return no dense feed-forward, the router, and the experts' maps."""
        none = LinearStruct()
        # Its scores decide, so its inputs are never rounded.
        router = PackedWeight(source.tensor(router_name(prefix)), None, self._library.panel)
        self._kept_alive.append(router)
        names = [expert_prefix(prefix, number) for number in range(experts.count)]
        maps = [
            (
                self._packed(gate_up_matrix(source, name, self._library.panel), None),
                self._packed(stored_matrix(source, name + "down_proj.weight"), None),
            )
            for name in names
        ]
        arrays = [(LinearStruct * experts.count)(*each) for each in zip(*maps, strict=True)]
        self._kept_alive += arrays
        return none, none, router.struct, *arrays

    def _feed_forward(
        self, config: ModelConfig, source: WeightSource, prefix: str
    ) -> tuple[Any, ...]:
        """Return the maps of a dense feed-forward, and no experts."""

        def biases() -> Tensor:
            gate, up = (source.tensor(f"{prefix}{name}_proj.bias") for name in ("gate", "up"))
            return interleaved(gate, up, self._library.panel)

        return (
            self._packed(
                gate_up_matrix(source, prefix, self._library.panel),
                biases() if config.mlp_bias else None,
            ),
            self._packed(
                stored_matrix(source, prefix + "down_proj.weight"),
                source.tensor(prefix + "down_proj.bias") if config.mlp_bias else None,
                config.multipliers.residual,
            ),
            LinearStruct(),
            None,
            None,
        )

    def _packed(self, weight: Matrix, bias: Tensor | None, scale: float = 1.0) -> ctypes.Structure:
        packed = self._weight(weight, bias, scale)
        self._kept_alive.append(packed)
        return packed.struct

    def _weight(self, weight: Matrix, bias: Tensor | None, scale: float = 1.0) -> PackedWeight:
        return PackedWeight(
            packed_blocks(weight, self._library, self._team)
            if isinstance(weight, BlockRows)
            else weight,
            bias,
            self._library.panel,
            pair_inputs=self._library.pair_inputs if self._bf16_products else 0,
            scale=scale,
        )

    def _floats(self, values: Tensor) -> int:
        values = values.float().contiguous()
        self._kept_alive.append(values)
        return values.data_ptr()

    def _attach(self, cache: PagedKVCache) -> None:
        self._model.block_size = cache.block_size
        self._model.cache_kind = _CACHE_KINDS[cache.dtype]
        for number, layer in enumerate(self._layers):
            layer.cache = cache.layer_pointer(number)
        self._cache = cache

    def _scratch_for(self, rows: int, longest: int) -> int:
        needed: int = self._library.scratch(self._model, rows, longest, self._threads)
        if self._scratch.shape[0] < needed:
            self._scratch = torch.empty(needed * 5 // 4)
        return self._scratch.data_ptr()


def _model_struct(
    config: ModelConfig, layers: ctypes.Array[LayerStruct], norm: int, *, deterministic: bool
) -> ModelStruct:
    """``norm``: the address of the last norm's weight. The cache's sizes are not set yet."""
    experts = config.experts
    mixture = (0, 0, 0, 0)
    if experts is not None:
        mixture = (experts.count, experts.top_k, experts.inner, int(experts.renormalised))
    return ModelStruct(
        layers,
        norm,
        config.num_layers,
        config.hidden_size,
        config.num_heads,
        config.num_kv_heads,
        config.head_dim,
        config.intermediate_size,
        0,
        WeightKind.FLOAT32,
        deterministic,
        _GATED[config.activation],
        *mixture,
        config.multipliers.residual,
        config.norm_eps,
    )


def _dtype(embedding: Matrix) -> torch.dtype:
    return embedding.dtype if isinstance(embedding, Tensor) else torch.float32
