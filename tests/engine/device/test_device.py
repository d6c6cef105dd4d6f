"""Which device, precision and number of threads are used: as requested, else what is available."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.config import DeviceError
from engine.device import device as subject
from engine.device.device import (
    Readback,
    choose_device,
    choose_dtype,
    cpu_has_bfloat16,
    set_threads,
    usable_cores,
)

CPU = torch.device("cpu")
LARGE, SMALL = 1 << 24, 1 << 10


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("no_gpu")
def test_an_unavailable_device_is_refused_and_never_chosen_for_auto() -> None:
    assert choose_device("auto") == choose_device("cpu") == CPU
    with pytest.raises(DeviceError, match="--device cuda"):
        choose_device("cuda")


def test_an_asked_dtype_is_taken_and_auto_takes_what_the_cpu_computes_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert choose_dtype("float16", "bfloat16", CPU) is torch.float16
    for native in (True, False):
        monkeypatch.setattr(subject, "cpu_has_bfloat16", lambda native=native: native)
        assert choose_dtype("auto", "float32", CPU) is torch.float32
        assert choose_dtype("auto", "float16", CPU) is torch.float32
        expected = torch.bfloat16 if native else torch.float32
        assert choose_dtype("auto", "bfloat16", CPU) is expected


def test_bfloat16_is_in_hardware_where_linux_says_so() -> None:
    try:
        words = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        pytest.skip("no /proc/cpuinfo")
    if "flags" not in words:
        pytest.skip("no x86")
    assert cpu_has_bfloat16() == bool({"avx512_bf16", "amx_bf16"} & set(words))


def test_reading_back_from_a_cpu_returns_the_tensors() -> None:
    one, two = torch.arange(3), torch.ones(2)
    assert [found.tolist() for found in Readback(one, two).wait()] == [[0, 1, 2], [1, 1]]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of eight hardware threads, two for each core, without a quota; ``cpu.max`` is in it."""
    for cpu in range(8):
        folder = tmp_path / f"cpu{cpu}"
        folder.mkdir()
        (folder / "physical_package_id").write_text(f"{cpu // 4}\n")
        (folder / "core_id").write_text(f"{cpu % 2}\n")
    monkeypatch.setattr(subject, "_TOPOLOGY", str(tmp_path / "cpu{}" / "{}"))
    monkeypatch.setattr(subject, "_CGROUP_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    return tmp_path


def test_hardware_threads_of_one_core_count_once(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert usable_cores() == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 4})
    assert usable_cores() == 2


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("max 100000", 4),
        ("250000 100000", 2),
        ("50000 100000", 1),
        ("900000 100000", 4),
        ("", 4),
        ("100000 0", 4),
    ],
)
def test_a_container_s_quota_bounds_the_cores(machine: Path, quota: str, cores: int) -> None:
    (machine / "cpu.max").write_text(quota)
    assert usable_cores() == cores


def test_without_topology_each_hardware_thread_counts_as_a_core(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "_TOPOLOGY", str(machine / "nowhere" / "{}" / "{}"))
    assert usable_cores() == 8


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("machine", "threads")
def test_threads_are_as_requested_else_all_cores_but_one_shared_among_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert set_threads(None, LARGE) == torch.get_num_threads() == 3
    assert set_threads(None, LARGE, processes=2) == 1
    assert set_threads(None, LARGE, processes=9) == 1
    assert set_threads(None, SMALL) == 1  # a small model gains nothing by a second thread
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert set_threads(None, SMALL) == torch.get_num_threads() == 2
    assert set_threads(5, SMALL) == torch.get_num_threads() == 5
    monkeypatch.setenv("OMP_NUM_THREADS", "2,1")  # a list, as OpenMP allows
    assert set_threads(None, SMALL) == 1
