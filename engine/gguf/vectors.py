"""Small tensors of a GGUF file that belong to its configuration."""

from __future__ import annotations

from contextlib import closing

import numpy as np

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.gguf.container import GgufHeader
from engine.weights.file import TensorFile


def read_vector(header: GgufHeader, name: str, count: int) -> list[float]:
    """Return its ``count`` numbers, each as the shortest decimal that reads back as the same
    float32. Raises ConfigError if there is none, and UnsupportedError if it is another tensor."""
    stored = header.tensors.get(name)
    if stored is None:
        raise ConfigError(f"{header.path} has no {name}")
    if stored.type.name != "F32" or stored.shape != (count,):
        raise UnsupportedError(
            f"{header.path}: {name} {list(stored.shape)} of type {stored.type.name} is not "
            f"supported; it must have {count} numbers in F32"
        )
    found = np.empty(stored.shape, np.float32)
    with closing(TensorFile(stored.path)) as file:
        file.read_into(found.data.cast("B"), stored.begin)
    return [float(str(value)) for value in found]
