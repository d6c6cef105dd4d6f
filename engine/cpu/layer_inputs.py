"""What each layer reads of each token besides the residual stream, by compiled products."""

from __future__ import annotations

from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.cpu.layers import PackedLayers
from engine.cpu.matrices import dtype_of, embedded, stored_matrix
from engine.model.layer_inputs import JoinedInputs
from engine.model.parameters import INPUT_EMBEDDING, INPUT_NORM, INPUT_PROJECTION
from engine.weights.weights import WeightSource


class PackedTokenInputs:
    """See ``engine.model.layer_inputs.TokenInputs``; in float32."""

    def __init__(self, config: ModelConfig, source: WeightSource, layers: PackedLayers) -> None:
        embedding = stored_matrix(source, INPUT_EMBEDDING)
        self._stored = dtype_of(embedding)
        # It is most of a small model; rows in floats are looked up as they are stored.
        self._embedding = (
            embedding if isinstance(embedding, Tensor) else layers.packed(embedding, None)
        )
        self._projection = layers.packed(stored_matrix(source, INPUT_PROJECTION), None)
        self._joined = JoinedInputs(config, source.tensor(INPUT_NORM).float())
        self._library, self._team = layers.library, layers.team

    def __call__(self, token_ids: Tensor, x: Tensor) -> Tensor:
        """float32 [tokens, layers, size], for embeddings ``x`` [tokens, hidden]."""
        found = embedded(self._embedding, self._library, token_ids)
        projected = self._projection.mapped(self._library, self._team, x)
        return self._joined(found, projected, self._stored)
