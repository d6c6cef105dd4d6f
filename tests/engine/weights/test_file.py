from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.architecture.errors import WeightsError
from engine.weights.file import TensorFile


def test_bytes_are_read_at_their_offset(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    file = TensorFile(path)
    buffer = bytearray(10)
    file.read_into(memoryview(buffer), 42)
    assert bytes(buffer) == bytes(range(42, 52))
    with pytest.raises(WeightsError, match="it ends at byte 100"):
        file.read_into(memoryview(buffer), 95)
    assert os.pread(file.fileno(), 2, 7) == b"\x07\x08"
    file.close()
    with pytest.raises(WeightsError, match="Bad file descriptor"):
        file.read_into(memoryview(buffer), 0)


def test_what_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="No such file"):
        TensorFile(tmp_path / "none")
    with pytest.raises(WeightsError, match="it is not a file"):
        TensorFile(tmp_path)
