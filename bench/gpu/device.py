"""What the device and its compiler say: clocks and power, registers and spills of each kernel."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
from collections.abc import Iterator
from typing import Any

import engine.gpu.kernels
from bench.gpu.report import Row

_ASKED = "clocks.sm,clocks.mem,power.draw,temperature.gpu"
_UNITS = ("sm_mhz", "memory_mhz", "watts", "degrees")


def clocks() -> Row:
    """Return what nvidia-smi says now. Raises RuntimeError without it."""
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={_ASKED}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise RuntimeError(f"nvidia-smi did not answer: {error}") from error
    return parsed(done.stdout)


def parsed(answer: str) -> Row:
    """Return the first device's numbers; None for those that it does not know."""
    values = answer.strip().splitlines()[0].split(",")
    row: Row = {}
    for name, value in zip(_UNITS, values, strict=True):
        try:
            row[name] = float(value)
        except ValueError:
            row[name] = None
    return row


def compiled() -> Iterator[Any]:
    """Yield what triton has compiled in this process for Quire's kernels."""
    for module in pkgutil.iter_modules(engine.gpu.kernels.__path__):
        kernels = importlib.import_module(f"engine.gpu.kernels.{module.name}")
        for value in vars(kernels).values():
            if getattr(value, "__module__", None) != kernels.__name__:
                continue  # imported there
            for caches in getattr(value, "device_caches", {}).values():
                yield from caches[0].values()


def resources() -> Row:
    """Return, by kernel, the most registers a thread takes, the most that it spills (in registers)
    and the most shared memory in bytes, over all variants."""
    found: dict[str, list[int]] = {}
    for kernel in compiled():
        if getattr(kernel, "n_regs", None) is None:  # compiled, but not launched
            continue
        own = (kernel.n_regs, kernel.n_spills, kernel.metadata.shared, 1)
        most = found.setdefault(kernel.metadata.name, [0, 0, 0, 0])
        for place, value in enumerate(own):
            most[place] = most[place] + value if place == 3 else max(most[place], value)
    names = ("registers", "spilled", "shared", "variants")
    return {name: dict(zip(names, most, strict=True)) for name, most in sorted(found.items())}
