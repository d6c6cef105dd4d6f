"""Where and in which precision to compute: device, dtype, threads."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from engine.config import DeviceError

_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/{}"

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def choose_device(name: str) -> torch.device:
    """``auto``: a CUDA device if there is one. Raises DeviceError when cuda is requested but
    unavailable."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise DeviceError(
            "--device cuda: torch finds no CUDA device (is this a CPU build of torch, or is the "
            "driver missing?)"
        )
    return torch.device("cuda", torch.cuda.current_device())


def choose_dtype(name: str, checkpoint: str, device: torch.device) -> torch.dtype:
    """``auto``: the checkpoint's own if the device supports it natively, else float32."""
    if name != "auto":
        return _DTYPES[name]
    dtype = _DTYPES[checkpoint]
    if device.type == "cuda":
        native = dtype != torch.bfloat16 or torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = dtype == torch.float32 or (dtype == torch.bfloat16 and cpu_has_bfloat16())
    return dtype if native else torch.float32


def gpu_memory(device: torch.device) -> int:
    """Return the bytes of a GPU's memory; 0 for a CPU."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.get_device_properties(device).total_memory)


def answers(device: torch.device) -> bool:
    """Return False if a GPU is lost to this process: after a kernel has written where it must not,
    all that is asked of it fails."""
    if device.type == "cuda":
        try:
            torch.cuda.synchronize(device)
        except RuntimeError:
            return False
    return True


def cpu_has_bfloat16() -> bool:
    """True if this CPU multiplies bfloat16 in hardware (AVX512-BF16, AMX, or Arm's BF16)."""
    if hasattr(torch.cpu, "get_capabilities"):
        capabilities = torch.cpu.get_capabilities()
        return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


class Readback:
    """Tensors being copied to the host, once the device has finished the work queued so far; later
    work does not delay them."""

    __slots__ = ("_copied", "_tensors")

    def __init__(self, *tensors: Tensor) -> None:
        self._tensors = tensors
        self._copied: torch.cuda.Event | None = None
        if tensors[0].is_cuda:
            self._tensors = tuple(
                torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(
                    tensor, non_blocking=True
                )
                for tensor in tensors
            )
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()

    def wait(self) -> tuple[Tensor, ...]:
        """Wait for the tensors and return them."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._tensors


# A product with a smaller matrix is finished before a second thread has even woken up.
_WORTH_SHARING_ELEMENTS = 1 << 19


def set_threads(threads: int | None, largest_matrix: int, processes: int = 1) -> int:
    """Set how many threads torch computes with, and return it: ``threads``, else OMP_NUM_THREADS,
    else all but one of the physical cores that this process may use, divided among ``processes``
    processes. A small model, without a matrix of more than ``largest_matrix`` elements, gets one.
    """
    asked = os.environ.get("OMP_NUM_THREADS", "")
    count = threads or (int(asked) if asked.isdecimal() else 0)
    if not count:
        shares = largest_matrix >= _WORTH_SHARING_ELEMENTS
        count = max(1, (usable_cores() - 1) // processes) if shares else 1
    torch.set_num_threads(count)
    return count


def usable_cores() -> int:
    """Return the physical cores that this process may run on, within its container's CPU quota."""
    cpus = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    cores = {_core_of(cpu) for cpu in cpus}
    quota = _cpu_quota()
    return len(cores) if quota is None else max(1, min(len(cores), int(quota)))


def _core_of(cpu: int) -> tuple[str, str]:
    """Identify a core; two hardware threads of one core get the same result."""
    try:
        package, core = (
            Path(_TOPOLOGY.format(cpu, name)).read_text().strip()
            for name in ("physical_package_id", "core_id")
        )
    except OSError:
        return ("", str(cpu))
    return (package, core)


def _cpu_quota() -> float | None:
    """Return the cgroup's CPU quota; None without a limit."""
    try:
        quota, period = _CGROUP_QUOTA.read_text().split()
        return None if quota == "max" else float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
