"""The GPUs that a process may use."""

from __future__ import annotations

from pathlib import Path

from engine.device.visible import visible_gpus


def test_the_gpus_of_a_machine_are_numbered_unless_the_variable_lists_some(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert visible_gpus({}, tmp_path) == ["0", "1"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "3, GPU-8f"}, tmp_path) == ["3", "GPU-8f"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == []
