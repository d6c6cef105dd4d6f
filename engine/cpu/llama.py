"""A Llama-like decoder that ``forward.c`` runs on a CPU, one call per step.

Weights and the KV cache are float32 or bfloat16."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.architecture.config import ModelConfig
from engine.architecture.features import Feature
from engine.architecture.rotary import RotaryEmbedding
from engine.attention.cache import PagedKVCache
from engine.attention.groups import GroupedKVCache, places_of
from engine.attention.layout import Layout, Rows, expect
from engine.cpu.integers import IntegerKind
from engine.cpu.layer_inputs import PackedTokenInputs
from engine.cpu.layers import PackedLayers
from engine.cpu.library import BatchStruct, LayerStruct, Library, ModelStruct
from engine.cpu.matrices import dtype_of, embedded, stored_matrix
from engine.cpu.packed import PackedWeight
from engine.model.llama import capped, embedding_multiplier, query_factors, ropes_of_sizes
from engine.model.parameters import EMBEDDING, HEAD, NORM
from engine.weights.weights import WeightSource

# What the compiled pass computes besides a plain Llama; torch computes a model with anything else.
SERVED_BY_C = frozenset(Feature) - {
    *(Feature.LEARNED_POSITIONS, Feature.CHUNKED_ATTENTION, Feature.ROTATED_NORMS),
    *(Feature.UNROTATED_SCALING, Feature.SCALED_INPUTS, Feature.SHARED_EXPERT),
}
# By activation: the outcome in linear.h.
_GATED = {"silu": 2, "gelu_tanh": 3}
_HEAD_UNIT = 16  # UNIT in attention.h
# Numbered as in linear.h.
_CACHE_KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 4}


def compiled_pass_fits(config: ModelConfig, lanes: int) -> bool:
    """Whether the compiled pass supports this model and its sizes fill whole vectors."""
    sizes = [config.hidden_size, config.intermediate_size]
    if config.experts is not None:
        sizes.append(config.experts.inner)
    if config.layer_inputs is not None:
        sizes.append(config.layer_inputs.size)
    own = [config.of_layer(layer) for layer in range(config.num_layers)]
    sizes += [layer.intermediate_size for layer in own]
    return (
        config.features <= SERVED_BY_C
        and config.activation in _GATED
        and not any(size % lanes for size in sizes)
        and not any(layer.head_dim % _HEAD_UNIT for layer in own)
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
        embedding = stored_matrix(source, EMBEDDING)
        self._multiplier = embedding_multiplier(config, dtype_of(embedding))
        tied = config.tie_word_embeddings
        layers = PackedLayers(config, source, library, self._team, bf16_products=bf16_products)
        self._embedding: PackedWeight | Tensor = (
            embedding
            if isinstance(embedding, Tensor) and not tied
            else layers.packed(embedding, None)
        )
        del embedding  # its memory, if it is packed
        self._logit_divisor = config.multipliers.logits
        self._logit_cap = config.logit_cap
        cpu = torch.device("cpu")
        kinds = ropes_of_sizes(config)
        self._ropes = [RotaryEmbedding(*kind, max_positions, cpu) for kind in kinds]
        self._head_dim = config.head_dim
        self._query_factors = query_factors(config, max_positions, cpu)
        self._inputs = None
        if config.layer_inputs is not None:
            self._inputs = PackedTokenInputs(config, source, layers)
        self._layers = (LayerStruct * config.num_layers)(
            *(layers.layer(number, kinds) for number in range(config.num_layers))
        )
        self._places = [places_of(config.kv_layers)[number] for number in config.kv_numbers]
        self._head = (
            self._embedding
            if tied and isinstance(self._embedding, PackedWeight)
            else layers.packed(stored_matrix(source, HEAD), None)
        )
        norm = layers.floats(source.tensor(NORM))
        self._kept_alive = layers  # what structures point to
        self._model = _model_struct(config, self._layers, norm, deterministic=deterministic)
        self._cache: PagedKVCache | GroupedKVCache | None = None
        self._scratch = torch.empty(0)

    @property
    def rounds_inputs(self) -> bool:
        """True if all layers' attention multiplies inputs rounded to 8 bits."""
        return all(layer.qkv.kind in set(IntegerKind) for layer in self._layers)

    def hidden_states(
        self,
        token_ids: Tensor,
        positions: Tensor,
        cache: PagedKVCache | GroupedKVCache,
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
        factors = self._query_factors
        own = _OfRows(
            self._rotations(positions),
            None if self._inputs is None else self._inputs(token_ids, x),
            None if factors is None else factors.index_select(0, positions),
            positions,
            tables.sequences,
        )
        out = torch.empty(kept.shape[0], self._hidden)
        common = {
            "kept_rows": kept.shape[0],
            "table_width": tables.blocks.shape[1],
            "longest": tables.longest,
            "x": x.data_ptr(),
            "tables": tables.blocks.data_ptr(),
            "kept": kept.data_ptr(),
            "out": out.data_ptr(),
            "scratch": self._scratch_for(count, tables.longest),
        }
        batch = BatchStruct(rows=count, **own.addresses, **common)
        if self._model.last_keys + 1 < self._model.num_layers and rows is not None:
            of_kept = own.index_select(rows)
            later = BatchStruct(rows=kept.shape[0], **of_kept.addresses, **common)
            batch.later = ctypes.addressof(later)
        self._library.forward(self._team, self._model, batch)
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        out = self._head.mapped(self._library, self._team, hidden)
        if self._logit_divisor != 1:
            out /= self._logit_divisor
        return out if self._logit_cap is None else capped(out, self._logit_cap)

    def _rotations(self, positions: Tensor) -> Tensor:
        """float32 [kinds, tokens, head_dim]: those of each kind of rotary embedding, padded to the
        size of the largest head."""
        found = [torch.view_as_real(rope.rotations(positions)).flatten(1) for rope in self._ropes]
        if len(found) == 1:
            return found[0].contiguous().unsqueeze(0)
        padded = [functional.pad(each, (0, self._head_dim - each.shape[1])) for each in found]
        return torch.stack(padded) if padded else torch.empty(0, positions.shape[0])

    def _attach(self, cache: PagedKVCache | GroupedKVCache) -> None:
        groups = cache.groups if isinstance(cache, GroupedKVCache) else (cache,)
        self._model.block_size = groups[0].block_size
        self._model.cache_kind = _CACHE_KINDS[groups[0].dtype]
        for place, layer in zip(self._places, self._layers, strict=True):
            layer.cache = groups[place.group].layer_pointer(place.index)
        self._cache = cache

    def _scratch_for(self, rows: int, longest: int) -> int:
        needed: int = self._library.scratch(self._model, rows, longest, self._threads)
        if self._scratch.shape[0] < needed:
            self._scratch = torch.empty(needed * 5 // 4)
        return self._scratch.data_ptr()


@dataclass(frozen=True, slots=True)
class _OfRows:
    """What ``forward.c`` reads of each row besides its states."""

    rotations: Tensor
    inputs: Tensor | None
    query_factors: Tensor | None
    positions: Tensor
    sequences: Tensor

    @property
    def addresses(self) -> dict[str, int]:
        """Those of the tensors, by the name of the struct's field."""
        found = {name: getattr(self, name) for name in self.__slots__}
        return {name: each.data_ptr() for name, each in found.items() if each is not None}

    def index_select(self, rows: Tensor) -> _OfRows:
        inputs, factors = self.inputs, self.query_factors
        return _OfRows(
            self.rotations.index_select(1, rows),
            None if inputs is None else inputs.index_select(0, rows),
            None if factors is None else factors.index_select(0, rows),
            self.positions.index_select(0, rows),
            self.sequences.index_select(0, rows),
        )


def _model_struct(
    config: ModelConfig, layers: ctypes.Array[LayerStruct], norm: int, *, deterministic: bool
) -> ModelStruct:
    """``norm``: the address of the last norm's weight. The cache's sizes are not set yet."""
    experts = config.experts
    inputs = 0 if config.layer_inputs is None else config.layer_inputs.size
    mixture = (0, 0, 0, 0)
    if experts is not None:
        mixture = (experts.count, experts.top_k, experts.inner, int(experts.renormalised))
    return ModelStruct(
        layers,
        norm,
        config.num_layers,
        max(i for i in range(config.num_layers) if config.sizes_of(i).keys_of is None),
        config.hidden_size,
        config.num_heads,
        config.num_kv_heads,
        config.head_dim,
        max(config.intermediate_size, inputs),
        inputs,
        0,
        _CACHE_KINDS[torch.float32],
        deterministic,
        _GATED[config.activation],
        *mixture,
        config.multipliers.residual,
        config.norm_eps,
    )
