"""A batch's arrays as the kernels read them: int32, with aligned rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
Integers = NDArray[np.signedinteger[Any]]

# In elements. Kernels are compiled for pointers and strides that are multiples of 16 bytes; arrays
# aligned otherwise would cause a compilation while serving.
ALIGNMENT = 16


def widened(table: Integers) -> Integers:
    """Pad ``table`` [rows, columns] with columns of zeros to a multiple of ``ALIGNMENT``."""
    missing = -table.shape[1] % ALIGNMENT
    return np.pad(table, ((0, 0), (0, missing))) if missing else table


def int32(array: Integers) -> NDArray[np.int32]:
    return array.astype(np.int32, copy=False)
