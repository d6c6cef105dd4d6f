"""A model's tensors as one rank holds them."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.sharding.shard import Range, Shard, Share, part_of
from engine.weights.weights import WeightSource


class SlicingSource(WeightSource, Protocol):
    def part(self, name: str, dim: int, ranges: tuple[Range, ...]) -> Tensor:
        """Return ``ranges`` of the named tensor's dimension ``dim``, concatenated; like ``tensor``
        for the whole."""
        ...


class ShardedWeights:
    """Reads from ``source`` the part that ``shard`` holds of the model with the (undivided)
    ``config``."""

    def __init__(self, source: SlicingSource, config: ModelConfig, shard: Shard) -> None:
        self._source = source
        self._config = config
        self._shard = shard

    def tensor(self, name: str) -> Tensor:
        held = part_of(name, self._config, self._shard)
        if held is Share.WHOLE:
            return self._source.tensor(name)
        if held is Share.ZEROS:
            return self._source.tensor(name).zero_()
        assert not isinstance(held, Share)
        return self._source.part(name, held.dim, held.ranges)
