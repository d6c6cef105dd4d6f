"""A Llama-like decoder that ``forward.c`` runs on a CPU, one call per step.

Weights and the KV cache are float32 or bfloat16."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.architecture.rope import RotaryEmbedding
from engine.attention.cache import PagedKVCache
from engine.attention.layout import Layout, Rows, expect
from engine.cpu.library import BatchStruct, LayerStruct, Library, ModelStruct
from engine.cpu.matrices import Matrix, embedded, fused_qkv_matrix, gate_up_matrix
from engine.cpu.packed import PackedWeight, WeightKind, interleaved
from engine.model.llama import EMBEDDING, HEAD, NORM, fused_qk_norm, fused_qkv
from engine.weights.quantization import matrix
from engine.weights.weights import WeightSource

_HEAD_UNIT = 16  # UNIT in attention.h
_CACHE_KINDS = {torch.float32: WeightKind.FLOAT32, torch.bfloat16: WeightKind.BFLOAT16}


def compiled_pass_fits(config: ModelConfig, lanes: int) -> bool:
    """Whether the compiled pass supports this model and its sizes fill whole vectors."""
    sizes = (config.hidden_size, config.intermediate_size)
    return (
        config.rope is not None
        and config.activation == "silu"
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
        if config.rope is None:
            raise ValueError("a Llama-like model needs rotary embeddings")
        if bf16_products and not library.bf16_products:
            raise ValueError(f"{library.path} has no products of bfloat16")
        self._library = library
        self._team = library.team(threads)
        self._threads = threads
        self._hidden = config.hidden_size
        self._bf16_products = bf16_products
        self._embedding = matrix(source, EMBEDDING)
        self._rope = RotaryEmbedding(
            config.rope, config.head_dim, max_positions, torch.device("cpu")
        )
        self._kept_alive: list[PackedWeight | Tensor] = []
        self._layers = (LayerStruct * config.num_layers)(
            *(self._layer(config, source, layer) for layer in range(config.num_layers))
        )
        tied = config.tie_word_embeddings
        head = self._embedding if tied else matrix(source, HEAD)
        self._head = self._weight(head, None)
        self._model = ModelStruct(
            self._layers,
            self._floats(source.tensor(NORM)),
            config.num_layers,
            config.hidden_size,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            config.intermediate_size,
            0,
            WeightKind.FLOAT32,
            deterministic,
            config.norm_eps,
        )
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
        x = embedded(self._embedding, token_ids)
        rotations = torch.view_as_real(self._rope.rotations(positions)).contiguous()
        out = torch.empty(kept.shape[0], self._hidden)
        longest = tables.longest
        batch = BatchStruct(
            count,
            kept.shape[0],
            tables.blocks.shape[1],
            longest,
            x.data_ptr(),
            rotations.data_ptr(),
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
        return out

    def _layer(self, config: ModelConfig, source: WeightSource, layer: int) -> LayerStruct:
        attention = f"model.layers.{layer}.self_attn."
        norms = f"model.layers.{layer}."
        return LayerStruct(
            self._packed(
                fused_qkv_matrix(config, source, attention),
                fused_qkv(config, source, attention, "bias") if config.qkv_bias else None,
            ),
            self._packed(
                matrix(source, attention + "o_proj.weight"),
                source.tensor(attention + "o_proj.bias") if config.output_bias else None,
            ),
            *self._feed_forward(config, source, f"model.layers.{layer}.mlp."),
            self._floats(source.tensor(norms + "input_layernorm.weight")),
            self._floats(source.tensor(norms + "post_attention_layernorm.weight")),
            self._floats(fused_qk_norm(config, source, attention)) if config.qk_norm else None,
            None,
            config.sliding_windows[layer] or 0,
            config.attention_scales[layer],
        )

    def _feed_forward(
        self, config: ModelConfig, source: WeightSource, prefix: str
    ) -> tuple[ctypes.Structure, ctypes.Structure]:
        def biases() -> Tensor:
            gate, up = (source.tensor(f"{prefix}{name}_proj.bias") for name in ("gate", "up"))
            return interleaved(gate, up, self._library.panel)

        return (
            self._packed(
                gate_up_matrix(source, prefix, self._library.panel),
                biases() if config.mlp_bias else None,
            ),
            self._packed(
                matrix(source, prefix + "down_proj.weight"),
                source.tensor(prefix + "down_proj.bias") if config.mlp_bias else None,
            ),
        )

    def _packed(self, weight: Matrix, bias: Tensor | None) -> ctypes.Structure:
        packed = self._weight(weight, bias)
        self._kept_alive.append(packed)
        return packed.struct

    def _weight(self, weight: Matrix, bias: Tensor | None) -> PackedWeight:
        return PackedWeight(weight, bias, self._library.panel, bf16_products=self._bf16_products)

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
