"""The matrices of a Llama-like decoder, fused for ``forward.c``, in floats or in few bits."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.cpu.blocks import kind_of_blocks
from engine.cpu.library import Library
from engine.cpu.packed import PackedWeight, interleaved
from engine.model.parameters import attention_prefix, head_order
from engine.weights.blocks import BlockRows, BlockSource, combined_blocks
from engine.weights.grouped import GroupedWeight, alike, combined, joined
from engine.weights.quantization import matrix
from engine.weights.weights import WeightSource

Matrix = BlockRows | GroupedWeight | Tensor


def stored(source: WeightSource, *names: str) -> list[Matrix]:
    """Return matrices with the same inputs: all in blocks of files, of types that ``blocks.h``
    packs, or each in few bits or in floats."""
    if isinstance(source, BlockSource):
        found = [source.blocks(name) for name in names]
        blocks = [each for each in found if each is not None and kind_of_blocks(each) is not None]
        if len(blocks) == len(names):
            return [*blocks]
    return [matrix(source, name) for name in names]


def stored_matrix(source: WeightSource, name: str) -> Matrix:
    """Return one matrix, as ``stored`` does."""
    return stored(source, name)[0]


def fused_qkv_matrices(config: ModelConfig, source: WeightSource, layer: int) -> list[Matrix]:
    """See ``engine.model.parameters.fused_qkv``, of the weights: one matrix; or, where value would
    be packed as another kind, as in half of the layers of a Q4_K_M file, one of query and key and
    one of value. Together, all would take the bits of the larger kind, or more."""
    own, names = config.of_layer(layer), config.sizes_of(layer).projections
    parts = stored(source, *(f"{attention_prefix(layer)}{name}_proj.weight" for name in names))
    order = head_order(own)

    def rows(heads: int) -> Tensor:
        return (torch.arange(heads).unsqueeze(1) * own.head_dim + order).view(-1)

    turned = [_rows(parts[0], rows(own.num_heads))]
    if len(parts) > 1:
        # The last is value, or key where both are one.
        turned += [_rows(parts[1], rows(own.num_kv_heads)), parts[-1]]
    if blocks := _in_blocks(turned):
        both, last = combined_blocks(blocks[:2], torch.cat), blocks[-1]
        if len(blocks) == 3 and kind_of_blocks(both) != kind_of_blocks(last):
            return [both, last]
        return [combined_blocks(blocks, torch.cat)]
    grouped = [part for part in turned if isinstance(part, GroupedWeight)]
    return [joined(grouped) if len(grouped) == len(turned) else torch.cat(_floats(turned))]


def gate_up_matrix(source: WeightSource, prefix: str, panel: int) -> Matrix:
    """Return the rows of gate and up, panel by panel in turn."""
    parts = stored(source, *(f"{prefix}{name}_proj.weight" for name in ("gate", "up")))

    def join(both: list[Tensor]) -> Tensor:
        return interleaved(both[0], both[1], panel)

    if blocks := _in_blocks(parts):
        return combined_blocks(blocks, join)
    grouped = [part for part in parts if isinstance(part, GroupedWeight)]
    if len(grouped) == len(parts):
        return combined(alike(grouped), join)
    return join(_floats(parts))


def embedded(embedding: PackedWeight | Tensor, library: Library, token_ids: Tensor) -> Tensor:
    """Return float32 [tokens, hidden]."""
    if isinstance(embedding, PackedWeight):
        return embedding.rows(library, token_ids)
    return embedding.index_select(0, token_ids).float()


def dtype_of(weight: Matrix) -> torch.dtype:
    """Return that of a matrix in floats, and float32 for one in few bits."""
    return weight.dtype if isinstance(weight, Tensor) else torch.float32


def _rows(part: Matrix, index: Tensor) -> Matrix:
    return part.index_select(0, index) if isinstance(part, Tensor) else part.rows(index)


def _in_blocks(parts: list[Matrix]) -> list[BlockRows]:
    """Return the parts if they are in blocks: then ``stored`` has all of them so."""
    return [part for part in parts if isinstance(part, BlockRows)]


def _floats(parts: list[Matrix]) -> list[Tensor]:
    found = []
    for part in parts:
        assert not isinstance(part, BlockRows)
        found.append(part.float() if isinstance(part, Tensor) else part.dequantised())
    return found
