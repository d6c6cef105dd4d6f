"""The matrices of a Llama-like decoder, fused for ``forward.c``, in floats or in few bits."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.architecture.rope import pair_order
from engine.cpu.library import Library
from engine.cpu.packed import PackedWeight, interleaved
from engine.weights.grouped import GroupedWeight, alike, combined, joined
from engine.weights.quantization import matrix
from engine.weights.weights import WeightSource

Matrix = GroupedWeight | Tensor


def fused_qkv_matrix(config: ModelConfig, source: WeightSource, prefix: str) -> Matrix:
    """See ``engine.model.llama.fused_qkv``, of the weights."""
    parts = [matrix(source, f"{prefix}{name}_proj.weight") for name in "qkv"]
    order = pair_order(config.head_dim, config.rotary_dim)

    def rows(heads: int) -> Tensor:
        return (torch.arange(heads).unsqueeze(1) * config.head_dim + order).view(-1)

    query, key, value = parts
    turned = [_rows(query, rows(config.num_heads)), _rows(key, rows(config.num_kv_heads)), value]
    grouped = [part for part in turned if isinstance(part, GroupedWeight)]
    return joined(grouped) if len(grouped) == len(turned) else torch.cat(_floats(turned))


def gate_up_matrix(source: WeightSource, prefix: str, panel: int) -> Matrix:
    """Return the rows of gate and up, panel by panel in turn."""
    parts = [matrix(source, f"{prefix}{name}_proj.weight") for name in ("gate", "up")]
    grouped = [part for part in parts if isinstance(part, GroupedWeight)]
    if len(grouped) == len(parts):
        return combined(alike(grouped), lambda both: interleaved(both[0], both[1], panel))
    gate, up = _floats(parts)
    return interleaved(gate, up, panel)


def embedded(embedding: PackedWeight | Tensor, library: Library, token_ids: Tensor) -> Tensor:
    """Return float32 [tokens, hidden]."""
    if isinstance(embedding, PackedWeight):
        return embedding.rows(library, token_ids)
    return embedding.index_select(0, token_ids).float()


def _rows(part: Matrix, index: Tensor) -> Matrix:
    if isinstance(part, GroupedWeight):
        return part.rows(index)
    return part.index_select(0, index)


def _floats(parts: list[Matrix]) -> list[Tensor]:
    return [
        part.dequantised() if isinstance(part, GroupedWeight) else part.float() for part in parts
    ]
