"""Small tensors of a GGUF file that belong to its configuration."""

from __future__ import annotations

import math
from contextlib import closing

import numpy as np

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.gguf.container import GgufHeader
from engine.weights.file import TensorFile

_MOST_NUMBERS = 1 << 12


def read_vector(header: GgufHeader, name: str) -> list[float]:
    """Return each number as the shortest decimal that reads back as the same float32.
    Raises ConfigError if there is none, and UnsupportedError if it is not of float32."""
    stored = header.tensors.get(name)
    if stored is None:
        raise ConfigError(f"{header.path} has no {name}")
    if stored.type.name != "F32" or math.prod(stored.shape) > _MOST_NUMBERS:
        raise UnsupportedError(
            f"{header.path}: {name} {list(stored.shape)} of type {stored.type.name} is not "
            f"supported; it must have at most {_MOST_NUMBERS} numbers in F32"
        )
    found = np.empty(stored.shape, np.float32)
    with closing(TensorFile(stored.path)) as file:
        file.read_into(found.data.cast("B"), stored.begin)
    return [float(str(value)) for value in found.reshape(-1)]
