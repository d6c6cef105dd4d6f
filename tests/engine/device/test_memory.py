"""The KV cache gets the memory that weights, steps and graphs leave; out-of-memory errors say what
the memory was for. Needs no GPU: a fake device counts memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import engine.run.loader
from engine.architecture.errors import ModelError
from engine.attention.cache import PagedKVCache
from engine.device.memory import (
    MemoryProfile,
    OutOfMemoryError,
    explaining,
    is_out_of_memory,
    profiled,
)
from engine.device.pages import zeros
from engine.run.assembly import Assembly, KVCacheTooSmallError
from tests.engine.driving import load_runner
from tests.engine.tiny_models import VARIANTS, save_model

GIB = 1 << 30
CPU = torch.device("cpu")


class Allocation:
    """Memory of the device that is in use until the last reference to it is gone."""

    def __init__(self, device: AccountedDevice, num_bytes: int, *, by_torch: bool) -> None:
        device.take(num_bytes, by_torch=by_torch)
        weakref.finalize(self, device.release, num_bytes, by_torch=by_torch)


class AccountedDevice:
    """What ``torch.cuda`` reports about a device: torch keeps memory until ``empty_cache``, the
    driver frees it at once."""

    def __init__(self, total: int, weights: int) -> None:
        self.total = total
        self.used = self.reserved = self.peak = weights
        self.idle = 0

    def take(self, num_bytes: int, *, by_torch: bool) -> None:
        if by_torch:
            reused = min(self.idle, num_bytes)
            self.idle -= reused
            num_bytes -= reused
            self.reserved += num_bytes
            self.peak = max(self.peak, self.reserved)
        self.used += num_bytes
        if self.used > self.total:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    def release(self, num_bytes: int, *, by_torch: bool) -> None:
        if by_torch:
            self.idle += num_bytes
        else:
            self.used -= num_bytes

    def empty_cache(self) -> None:
        self.used -= self.idle
        self.reserved -= self.idle
        self.idle = 0

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        replacements: dict[str, Any] = {
            "empty_cache": self.empty_cache,
            "synchronize": lambda device: None,
            "mem_get_info": lambda device: (self.total - self.used, self.total),
            "memory_reserved": lambda device: self.reserved,
            "memory_allocated": lambda device: self.reserved - self.idle,
            "max_memory_reserved": lambda device: self.peak,
            "reset_peak_memory_stats": self.reset_peak,
        }
        for name, replacement in replacements.items():
            monkeypatch.setattr(torch.cuda, name, replacement)

    def reset_peak(self, device: torch.device) -> None:
        self.peak = self.reserved


def test_a_profile_counts_step_and_graphs_and_keeps_neither(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = AccountedDevice(80 * GIB, weights=16 * GIB)
    device.patch(monkeypatch)

    def prepare() -> Callable[[], None]:
        cache = Allocation(device, 5 * GIB, by_torch=True)  # not the step's
        return lambda: step(cache)

    def step(_cache: Allocation) -> None:
        first = Allocation(device, 3 * GIB, by_torch=True)
        Allocation(device, 1 * GIB, by_torch=True)  # its peak, and gone
        del first

    def record() -> object:
        Allocation(device, 1 * GIB, by_torch=True)  # the steps to warm up
        return [
            Allocation(device, 2 * GIB, by_torch=True),
            *(Allocation(device, GIB // 8, by_torch=False) for _ in range(8)),  # the driver's
        ]

    profile = profiled(torch.device("cuda", 0), prepare, record)
    assert profile == MemoryProfile(total=80 * GIB, free=64 * GIB, step=4 * GIB, graphs=3 * GIB)
    assert profile.for_blocks(0.9) == (72 - 16 - 4 - 3) * GIB


def test_without_graphs_none_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    device = AccountedDevice(80 * GIB, weights=16 * GIB)
    device.patch(monkeypatch)
    profile = profiled(torch.device("cuda", 0), lambda: lambda: None, None)
    assert profile == MemoryProfile(total=80 * GIB, free=64 * GIB, step=0, graphs=0)


sizes = st.integers(0, 80 * GIB)


@given(weights=sizes, step=sizes, graphs=sizes, share=st.floats(0.01, 1))
def test_a_cache_of_that_size_a_step_and_the_graphs_fill_no_more_than_the_share(
    weights: int, step: int, graphs: int, share: float
) -> None:
    profile = MemoryProfile(total=80 * GIB, free=80 * GIB - weights, step=step, graphs=graphs)
    cache = profile.for_blocks(share)
    assert weights + step + graphs + cache == int(80 * GIB * share)


def test_a_profile_says_where_the_memory_went() -> None:
    profile = MemoryProfile(total=80 * GIB, free=64 * GIB, step=4 * GIB, graphs=3 * GIB // 2)
    for part in ("80.00 GiB", "16.00 GiB", "4.00 GiB for the largest step", "1.50 GiB for CUDA"):
        assert part in str(profile)


def chained(cause: Exception, last: Exception) -> Exception:
    try:
        try:
            raise cause
        except Exception:
            raise last  # noqa: B904 as the end of a recording does, without saying why
    except Exception as error:
        return error


OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (OUT_OF_MEMORY, True),
        (torch.AcceleratorError("CUDA error: out of memory"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (chained(OUT_OF_MEMORY, torch.AcceleratorError("capture was broken off")), True),
        (torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), False),
        (chained(ValueError("out of memory"), RuntimeError("broken off")), False),
    ],
)
def test_errors_caused_by_a_lack_of_memory_are_recognised(error: Exception, is_one: bool) -> None:
    assert is_out_of_memory(error) is is_one
    expected = OutOfMemoryError if is_one else type(error)
    with pytest.raises(expected), explaining(CPU, "a thing", "lower --it"):
        raise error


@pytest.mark.parametrize("allocate", [torch.empty, zeros])
def test_an_allocators_own_error_on_a_cpu_is_one(allocate: Callable[[int], Tensor]) -> None:
    told = "for a thing; lower --it"
    with pytest.raises(OutOfMemoryError, match=told), explaining(CPU, "a thing", "lower --it"):
        allocate(1 << 60)


def test_the_innermost_purpose_is_reported() -> None:
    with (
        pytest.raises(OutOfMemoryError, match="for the inner"),
        explaining(CPU, "the outer", "-"),
        explaining(CPU, "the inner", "-"),
    ):
        raise OUT_OF_MEMORY


def test_free_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    AccountedDevice(80 * GIB, weights=79 * GIB).patch(monkeypatch)
    cuda = torch.device("cuda", 0)
    told = r"cuda:0 has too little memory for a thing \(1.00 GiB of 80.00 GiB are free, .*79.00 GiB"
    with pytest.raises(OutOfMemoryError, match=told), explaining(cuda, "a thing", "lower --it"):
        raise OUT_OF_MEMORY


# --- where a model is loaded --------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    save_model(VARIANTS["qwen3"], directory)
    return directory


def run_out(*args: Any, **settings: Any) -> Any:
    raise OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("where", "name", "told"),
    [
        (engine.run.loader, "_build", r"the weights, [\d,]+ parameters \(.* here in float32\)"),
        (PagedKVCache, "__init__", r"a KV cache of 8 blocks, .* GiB; lower --num-kv-blocks"),
        (Assembly, "_new_recorded", r"CUDA graphs .* 64 sequences; .* --no-cuda-graphs"),
        (Assembly, "_run_first_steps", "the first steps; lower --num-kv-blocks"),
    ],
)
def test_each_stage_that_runs_out_of_memory_says_what_it_was_for_and_what_to_lower(
    where: Any, name: str, told: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, run_out)
    with pytest.raises(ModelError, match=told):
        load_runner(model, num_kv_blocks=8, max_model_len=128)


def test_a_cache_that_does_not_fit_is_reported_with_the_memory_used_by_the_rest(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = MemoryProfile(total=GIB, free=GIB // 2, step=GIB // 4, graphs=GIB)
    told = f"holds 0 tokens, .* \\({profile}\\); lower --max-model-len"

    def memory_for_blocks(assembly: Assembly) -> tuple[int, str]:
        return profile.for_blocks(0.9), f" ({profile})"

    monkeypatch.setattr(Assembly, "_memory_for_blocks", memory_for_blocks)
    with pytest.raises(KVCacheTooSmallError, match=told):
        load_runner(model)
