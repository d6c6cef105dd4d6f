"""A Llama-like decoder's layers as ``forward.c`` reads them, their weights packed."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.architecture.features import Experts, QKNorm, sliding
from engine.cpu.blocks import packed_blocks
from engine.cpu.library import LayerStruct, Library, LinearStruct
from engine.cpu.matrices import Matrix, fused_qkv_matrices, gate_up_matrix, stored_matrix
from engine.cpu.packed import PackedWeight, interleaved
from engine.model.attention import RopeOfSize
from engine.model.experts import expert_prefix, router_name
from engine.model.parameters import (
    EXPERT_SCALES,
    LAYER_INPUT_NAMES,
    LAYER_SCALE,
    NORM_NAMES,
    PARALLEL_NAMES,
    attention_prefix,
    fused_qk_norm,
    fused_qkv,
    router_norm,
    whole_qk_norms,
)
from engine.weights.blocks import BlockRows
from engine.weights.weights import WeightSource

LayerFields = dict[str, Any]  # of a LayerStruct


class PackedLayers:
    """Packs a model's layers, and keeps what the structures point to."""

    def __init__(
        self,
        config: ModelConfig,
        source: WeightSource,
        library: Library,
        team: int,
        *,
        bf16_products: bool,
    ) -> None:
        """``team``: threads of ``library``; ``bf16_products``: see ``CompiledLlama``."""
        self._config = config
        self._source = source
        self.library = library
        self.team = team
        self._bf16_products = bf16_products
        self._kept_alive: list[Any] = []

    def layer(self, number: int, kinds: list[RopeOfSize]) -> LayerStruct:
        """Return a layer without a cache. ``kinds``: of rotary embeddings, by their numbers."""
        config, source = self._config, self._source
        own, rope = config.of_layer(number), config.ropes[number]
        prefix = attention_prefix(number)
        norms = NORM_NAMES[config.norms]
        factor = self._scalar(number) if config.layer_scales else 1.0
        return LayerStruct(
            **self._qkv(number),
            output=self._packed(
                stored_matrix(source, prefix + "o_proj.weight"),
                source.tensor(prefix + "o_proj.bias") if config.output_bias else None,
                config.multipliers.residual,
            ),
            **self._feeding(number),
            **self._inputs(number),
            attention_input=self._norm(number, norms.attention_input),
            attention_output=self._norm(number, norms.attention_output),
            feed_input=self._norm(number, norms.feed_input),
            feed_output=self._norm(number, norms.feed_output),
            **self._head_norms(number),
            kv_heads=own.num_kv_heads,
            head_dim=own.head_dim,
            inner=own.intermediate_size,
            has_keys=config.sizes_of(number).keys_of is None,
            window=sliding(config.windows[number]) or 0,
            rope=-1 if rope is None else kinds.index((rope, own.head_dim)),
            scale=config.attention_scales[number],
            factor=factor,
        )

    def packed(self, weight: Matrix, bias: Tensor | None, scale: float = 1.0) -> PackedWeight:
        """``scale``: of the result, where it is added to something."""
        return PackedWeight(
            packed_blocks(weight, self.library, self.team)
            if isinstance(weight, BlockRows)
            else weight,
            bias,
            self.library.panel,
            pair_inputs=self.library.pair_inputs if self._bf16_products else 0,
            scale=scale,
        )

    def floats(self, values: Tensor) -> int:
        """Return the address of the values as float32."""
        values = values.float().contiguous()
        self._kept_alive.append(values)
        return values.data_ptr()

    def _packed(self, weight: Matrix, bias: Tensor | None, scale: float = 1.0) -> LinearStruct:
        packed = self.packed(weight, bias, scale)
        self._kept_alive.append(packed)
        return packed.struct

    def _norm(self, layer: int, name: str | None) -> int | None:
        if name is None:
            return None
        return self.floats(self._source.tensor(f"model.layers.{layer}.{name}.weight"))

    def _scalar(self, layer: int) -> float:
        return float(self._source.tensor(f"model.layers.{layer}.{LAYER_SCALE}"))

    def _qkv(self, layer: int) -> LayerFields:
        """Return the map of query, key and value; and one of value, if it is apart."""
        config, source = self._config, self._source
        matrices = fused_qkv_matrices(config, source, layer)
        bias = fused_qkv(config, source, layer, "bias") if config.qkv_bias else None
        if len(matrices) == 1:
            return {"qkv": self._packed(matrices[0], bias)}
        both, value = matrices
        if bias is None:
            return {"qkv": self._packed(both, None), "value": self._packed(value, None)}
        first, last = bias[: both.shape[0]], bias[both.shape[0] :]
        return {"qkv": self._packed(both, first), "value": self._packed(value, last)}

    def _head_norms(self, layer: int) -> LayerFields:
        config, source = self._config, self._source
        match config.qk_norm:
            case QKNorm.NONE:
                return {}
            case QKNorm.HEAD:
                norms = fused_qk_norm(config, source, layer)
                if config.value_norm and config.sizes_of(layer).keys_of is None:
                    values = norms.new_ones(config.of_layer(layer).num_kv_heads, norms.shape[1])
                    norms = torch.cat((norms, values))
                return {"head_norms": self.floats(norms), "normed_heads": norms.shape[0]}
            case QKNorm.WHOLE:
                norms = torch.cat(whole_qk_norms(config, source, layer))
                return {"whole_qk_norm": self.floats(norms)}

    def _feeding(self, layer: int) -> LayerFields:
        """Return the maps of a feed-forward, of experts, or of both."""
        config, prefix = self._config, f"model.layers.{layer}.mlp."
        if config.experts is None or not config.has_experts(layer):
            return self._feed_forward(prefix)
        found = self._experts(config.experts, prefix)
        if not config.has_parallel_experts(layer):
            found["experts_output"] = self._norm(layer, NORM_NAMES[config.norms].feed_output)
            return found
        scales = self._source.tensor(f"model.layers.{layer}.{EXPERT_SCALES}")
        return {
            **self._feed_forward(prefix),
            **found,
            "router_input": self.floats(router_norm(config, self._source, layer)),
            "experts_input": self._norm(layer, PARALLEL_NAMES.experts_input),
            "experts_output": self._norm(layer, PARALLEL_NAMES.experts_output),
            "parallel_output": self._norm(layer, PARALLEL_NAMES.feed_output),
            "expert_scales": self.floats(scales),
        }

    def _experts(self, experts: Experts, prefix: str) -> LayerFields:
        """Return the router, and the experts' maps."""
        source = self._source
        # Its scores decide, so its inputs are never rounded.
        router = PackedWeight(source.tensor(router_name(prefix)), None, self.library.panel)
        self._kept_alive.append(router)
        names = [expert_prefix(prefix, number) for number in range(experts.count)]
        maps = [
            (
                self._packed(gate_up_matrix(source, name, self.library.panel), None),
                self._packed(stored_matrix(source, name + "down_proj.weight"), None),
            )
            for name in names
        ]
        gate_up, down = ((LinearStruct * experts.count)(*each) for each in zip(*maps, strict=True))
        self._kept_alive += [gate_up, down]
        pointer = ctypes.POINTER(LinearStruct)
        return {
            "router": router.struct,
            "expert_gate_up": ctypes.cast(gate_up, pointer),
            "expert_down": ctypes.cast(down, pointer),
        }

    def _feed_forward(self, prefix: str) -> LayerFields:
        source, has_bias = self._source, self._config.mlp_bias

        def biases() -> Tensor:
            gate, up = (source.tensor(f"{prefix}{name}_proj.bias") for name in ("gate", "up"))
            return interleaved(gate, up, self.library.panel)

        return {
            "gate_up": self._packed(
                gate_up_matrix(source, prefix, self.library.panel),
                biases() if has_bias else None,
            ),
            "down": self._packed(
                stored_matrix(source, prefix + "down_proj.weight"),
                source.tensor(prefix + "down_proj.bias") if has_bias else None,
                self._config.multipliers.residual,
            ),
        }

    def _inputs(self, layer: int) -> LayerFields:
        if self._config.layer_inputs is None:
            return {}
        names, prefix = LAYER_INPUT_NAMES, f"model.layers.{layer}."
        gate, projection = (
            self._packed(stored_matrix(self._source, f"{prefix}{name}.weight"), None)
            for name in (names.gate, names.projection)
        )
        norm = self._norm(layer, names.norm)
        return {"input_gate": gate, "input_map": projection, "input_norm": norm}
