"""The tensors of a GGUF file by the names and in the shapes that transformers' model has."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.gguf.container import GgufHeader
from engine.gguf.families import family_of, keys_of
from engine.gguf.names import layer_of
from engine.gguf.parts import read_gguf_header
from engine.gguf.weights import GgufWeights
from engine.plugin.gguf_composition import Composition, FromKey, Splits, composition_of
from engine.plugin.gguf_values import Changes
from engine.weights.grouped import GroupedWeight
from engine.weights.stored import Shape

_MOST_LAYERS = 4096


class GgufTensors:
    """See ``CheckpointTensors``. Matrices are read in few bits, or dequantized to ``dtype``."""

    def __init__(self, path: Path, ends: ExitStack, model: Any, dtype: torch.dtype) -> None:
        """``model``: what the tensors are for; its weights are not read. Raises ModelError."""
        header = read_gguf_header(path, keep_texts=False)
        changes = Changes(model.config)
        stored = [*model.named_parameters(), *_stored_buffers(model)]
        self._shapes: Mapping[str, Shape] = {name: tuple(each.shape) for name, each in stored}
        splits = Splits.of(header.tensors)
        given = family_of(header).parameters(keys_of(header))
        self._compositions: dict[str, Composition] = {
            name: FromKey(given[name], shape)
            if name in given
            else composition_of(name, shape, model, changes, splits)
            for name, shape in self._shapes.items()
        }
        self._weights = ends.enter_context(
            GgufWeights(
                path,
                dict(part for each in self._compositions.values() for part in each.stored),
                # 0: only families whose rows are permuted need it.
                head_dim=getattr(model.config, "head_dim", None) or 0,
                dtype=dtype,
                device=torch.device("cpu"),
                progress=lambda done, total: None,
                ignored=[
                    *_mtp_tensors(header, model.config.num_hidden_layers),
                    *_sharing_tensors(model.config),
                ],
                keeps_float32=True,
            )
        )

    @property
    def names(self) -> list[str]:
        return list(self._shapes)

    def unexpected(self, names: list[str]) -> list[str]:
        return names

    def reads_in_place(self, name: str) -> bool:
        return False

    def num_bytes(self, name: str) -> int:
        raise AssertionError("no tensor is read in place")

    def read(self, name: str, memory: Tensor | None = None) -> Tensor:
        """Return a tensor, never in ``memory``. Raises WeightsError."""
        composition = self._compositions[name]
        return composition.whole([self._weights.tensor(part) for part, _ in composition.stored])

    def grouped(self, name: str) -> tuple[GroupedWeight, Shape] | None:
        """Return a matrix in its few bits, of experts all rows, and its shape; None if it is stored
        in floats. Raises WeightsError."""
        composition = self._compositions[name]
        found = []
        for part, _ in composition.stored:
            if (weight := self._weights.grouped(part)) is None:
                return None
            found.append(weight)
        whole = composition.in_few_bits(found)
        return None if whole is None else (whole, self._shapes[name])

    def log(self) -> None:
        """Nothing: ``described_quantization`` says that it is a GGUF file."""


def _stored_buffers(model: Any) -> list[tuple[str, Tensor]]:
    there = model.state_dict().keys()
    return [(name, buffer) for name, buffer in model.named_buffers() if name in there]


def _mtp_tensors(header: GgufHeader, layers: int) -> list[str]:
    """Return the names of the tensors of multi-token prediction layers, which are not computed."""
    last = keys_of(header).integer("block_count", high=_MOST_LAYERS)
    numbers = ((name, layer_of(name)) for name in header.tensors)
    return [name for name, layer in numbers if layer is not None and layers <= layer < last]


def _sharing_tensors(config: Any) -> list[str]:
    """Return the names of the tensors of layers that use keys and values of others. Published
    checkpoints have these, though nothing uses them."""
    layers = config.num_hidden_layers
    shared = getattr(config, "num_kv_shared_layers", 0)
    return [
        f"blk.{layer}.{module}.weight"
        for layer in range(layers - shared, layers)
        for module in ("attn_k", "attn_k_norm", "attn_v")
    ]
