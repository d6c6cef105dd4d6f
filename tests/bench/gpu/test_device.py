"""What nvidia-smi says, and its absence."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton")

from bench.gpu.device import clocks, parsed, resources


def test_numbers_are_read_and_gaps_are_none() -> None:
    answer = "1980, 2619, 690.12, [N/A]\n345, 2619, 80.0, 30\n"
    assert parsed(answer) == {
        "sm_mhz": 1980.0,
        "memory_mhz": 2619.0,
        "watts": 690.12,
        "degrees": None,
    }


def test_without_nvidia_smi_the_row_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="nvidia-smi did not answer"):
        clocks()


def test_interpreted_kernels_have_no_resources() -> None:
    assert resources() == {}
