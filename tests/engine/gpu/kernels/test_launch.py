"""Every shape that is served has tiles, and helpers of launches keep their promises."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton")

from engine.gpu.kernels import launch
from engine.gpu.kernels.launch import (
    decode_tiles,
    early_launch,
    num_sms,
    padded,
    ragged_tiles,
    row_stride,
    set_early_launch,
    uniform_tiles,
    warps_for,
)


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_head_that_fits_has_tiles_whose_sides_triton_takes(dtype: torch.dtype) -> None:
    for head_dim in range(8, 257, 8):
        decode, ragged = decode_tiles(head_dim, dtype), ragged_tiles(head_dim, dtype)
        for side in (decode.keys, ragged.rows, ragged.keys, padded(head_dim)):
            assert is_power_of_two(side)
            assert side >= 16  # a product on the tensor cores
        assert head_dim <= padded(head_dim) <= max(16, 2 * head_dim)


@given(st.integers(1, 100_000))
def test_warps_are_a_power_of_two_that_a_program_may_have(elements: int) -> None:
    assert is_power_of_two(warps_for(elements))
    assert warps_for(elements) <= 16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kibibytes", [99, 163, 227])  # of sm_86 and sm_89, sm_80, sm_90
def test_tiles_of_prompts_fit_the_shared_memory_of_a_program(
    kibibytes: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "shared_memory", lambda device: kibibytes << 10)
    for head_dim in (16, 32, 64, 80, 96, 128, 256):
        whole = launch.UNIFORM[padded(head_dim), dtype.itemsize]
        uniform = uniform_tiles(head_dim, dtype, torch.device("cuda", 0))
        for tiles in (ragged_tiles(head_dim, dtype), uniform):
            assert tiles.shared_bytes(head_dim, dtype.itemsize) <= kibibytes << 10
        # What sums depend on is the same everywhere.
        assert (uniform.rows, uniform.keys) == (whole.rows, whole.keys)
        assert uniform == whole or kibibytes == 99


def test_shared_memory_is_counted_as_triton_counts_it() -> None:
    """The table's own numbers, of triton 3.6.0 and 3.8.0: tests/engine/gpu/kernels/resources."""
    assert launch.UNIFORM[128, 2].shared_bytes(128, 2) == 114_688
    assert launch.RAGGED[128, 2].shared_bytes(128, 2) == 81_920


def test_a_row_s_elements_must_be_adjacent() -> None:
    x = torch.zeros(4, 10)
    assert row_stride(x[:, :3]) == 10
    with pytest.raises(ValueError, match="adjacent"):
        row_stride(x.t())


def test_a_cpu_counts_as_one_multiprocessor() -> None:
    assert num_sms(torch.device("cpu")) == 1


@pytest.mark.parametrize(
    ("backend", "arch", "early"),
    [("cuda", 90, True), ("cuda", 100, True), ("cuda", 89, False), ("hip", "gfx942", False)],
)
def test_kernels_start_early_where_the_device_can_and_it_is_wanted(
    backend: str, arch: int, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = SimpleNamespace(backend=backend, arch=arch)
    device = SimpleNamespace(get_current_target=lambda: target)
    monkeypatch.setattr(launch, "driver", SimpleNamespace(active=device))
    monkeypatch.setattr(launch, "INTERPRETED", False)
    launch._supports_early_launch.cache_clear()
    try:
        options = {"EARLY": True, "launch_pdl": True} if early else {"EARLY": False}
        assert early_launch() == options
        set_early_launch(False)
        assert early_launch() == {"EARLY": False}
        monkeypatch.setattr(launch, "INTERPRETED", True)
        launch._supports_early_launch.cache_clear()
        set_early_launch(True)
        assert early_launch() == {"EARLY": False}
    finally:
        set_early_launch(True)
        launch._supports_early_launch.cache_clear()
