from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.gguf.container import GgufHeader
from engine.gguf.parts import read_gguf_header
from engine.gguf.vectors import read_vector

VALUES = np.array([1.5, -2.0, 0.1], np.float32)


@pytest.fixture
def header(tmp_path: Path) -> GgufHeader:
    writer = gguf.GGUFWriter(tmp_path / "t.gguf", "phi3")
    writer.add_tensor("found", VALUES)
    writer.add_tensor("half", VALUES.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_gguf_header(tmp_path / "t.gguf")


def test_a_vector_has_the_values_that_were_written(header: GgufHeader) -> None:
    assert read_vector(header, "found") == [1.5, -2.0, 0.1]


def test_what_is_no_vector_of_float32_is_named(header: GgufHeader) -> None:
    with pytest.raises(UnsupportedError, match=r"half \[3\] of type F16 is not supported"):
        read_vector(header, "half")
    with pytest.raises(ConfigError, match=r"has no rope_factors_short\.weight"):
        read_vector(header, "rope_factors_short.weight")
