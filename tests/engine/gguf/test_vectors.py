from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.gguf.container import GgufHeader
from engine.gguf.vectors import read_vector
from tests.engine.gguf.making import write_header

VALUES = np.array([1.5, -2.0, 0.1], np.float32)


@pytest.fixture
def header(tmp_path: Path) -> GgufHeader:
    return write_header(tmp_path, "phi3", {}, {"found": VALUES, "half": VALUES.astype(np.float16)})


def test_a_vector_has_the_values_that_were_written(header: GgufHeader) -> None:
    assert read_vector(header, "found", 3) == [1.5, -2.0, 0.1]


def test_errors_name_a_vector_that_is_missing_or_not_float32(header: GgufHeader) -> None:
    with pytest.raises(UnsupportedError, match=r"half \[3\] of type F16 is not supported"):
        read_vector(header, "half", 3)
    with pytest.raises(ConfigError, match=r"has no rope_factors_short\.weight"):
        read_vector(header, "rope_factors_short.weight", 3)
    with pytest.raises(UnsupportedError, match=r"found \[3\] .* must have 4 numbers in F32"):
        read_vector(header, "found", 4)
