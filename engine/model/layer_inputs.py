"""What each layer reads of each token besides the residual stream, in torch (Gemma 3n and 4)."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.model.attention import make_norm
from engine.model.layers import ACTIVATIONS, NormedAddition, RMSNorm, make_linear
from engine.model.parameters import (
    INPUT_EMBEDDING,
    INPUT_NORM,
    INPUT_PROJECTION,
    LAYER_INPUT_NAMES,
)
from engine.weights.weights import WeightSource


class TokenInputs:
    """Makes every layer's inputs of the tokens and of their embeddings."""

    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        self._joined = JoinedInputs(config, source.tensor(INPUT_NORM))
        self._embedding = source.tensor(INPUT_EMBEDDING)
        self._projection = make_linear(source.tensor(INPUT_PROJECTION))

    def __call__(self, token_ids: Tensor, x: Tensor) -> Tensor:
        """[tokens, layers, size], of ``token_ids`` [tokens] and embeddings ``x`` [tokens, hidden],
        which the model has multiplied."""
        embedded = self._embedding.index_select(0, token_ids)
        return self._joined(embedded, self._projection(x), self._embedding.dtype)


class JoinedInputs:
    """Joins the two parts of which layers' inputs are made."""

    def __init__(self, config: ModelConfig, norm: Tensor) -> None:
        """``norm``: the weight of the projection's norm."""
        assert config.layer_inputs is not None
        size = config.layer_inputs.size
        self._shape = (config.num_layers, size)
        self._norm = RMSNorm(norm, config.norm_eps)
        self._multiplier = size**0.5
        self._projection_scale = config.hidden_size**-0.5

    def __call__(self, embedded: Tensor, projected: Tensor, stored: torch.dtype) -> Tensor:
        """[tokens, layers, size], of embeddings that are ``stored`` so and of a projection, both
        [tokens, layers * size], which are overwritten."""
        embedded *= torch.tensor(self._multiplier, dtype=stored).item()
        projected *= self._projection_scale
        normed = self._norm(projected.view(-1, *self._shape))
        return normed.add_(embedded.view(-1, *self._shape)).mul_(2**-0.5)


class LayerInput:
    """Adds to the residual stream what one layer makes of its inputs, gated by the stream."""

    def __init__(self, config: ModelConfig, source: WeightSource, layer: int) -> None:
        names, prefix = LAYER_INPUT_NAMES, f"model.layers.{layer}."
        self._gate = make_linear(source.tensor(f"{prefix}{names.gate}.weight"))
        self._activation = ACTIVATIONS[config.activation]
        projection = make_linear(source.tensor(f"{prefix}{names.projection}.weight"))
        norm = make_norm(config, source, layer, names.norm)
        self._projection = NormedAddition(projection, norm, 1.0)

    def add_to(self, residual: Tensor, inputs: Tensor) -> Tensor:
        """``inputs`` [tokens, size]; ``residual`` [tokens, hidden] may be overwritten."""
        gate = self._activation(self._gate(residual))
        return self._projection.add_to(residual, gate * inputs)
