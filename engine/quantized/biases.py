"""Biases of quantized matrices that a model does not have.

AutoGPTQ stored one with each matrix, all zero where the model has none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from engine.architecture.errors import WeightsError
from engine.quantized.layouts import QuantizedTensor
from engine.weights.stored import StoredTensor, read_tensor

logger = logging.getLogger(__name__)

_BIAS, _WEIGHT = ".bias", ".weight"


def zero_biases(
    tensors: Mapping[str, StoredTensor | QuantizedTensor], unexpected: Iterable[str]
) -> frozenset[str]:
    """Return which of the ``unexpected`` names are biases of quantized matrices, all zero, so that
    the model means the same without them. Raises WeightsError for one that is not zero."""
    found = [name for name in unexpected if _is_bias(name, tensors)]
    for name in found:
        stored = tensors[name]
        assert isinstance(stored, StoredTensor)
        if read_tensor(stored).any():
            raise WeightsError(
                f"{stored.name} is not zero, but by its config.json the model has no such bias; a "
                "bias that the model does not have may be stored only as zeros"
            )
    if found:
        logger.info("left out %d biases, all zero, that the model does not have", len(found))
    return frozenset(found)


def _is_bias(name: str, tensors: Mapping[str, StoredTensor | QuantizedTensor]) -> bool:
    if not name.endswith(_BIAS):
        return False
    matrix = tensors.get(name.removesuffix(_BIAS) + _WEIGHT)
    return isinstance(matrix, QuantizedTensor) and tensors[name].shape == matrix.shape[:1]
