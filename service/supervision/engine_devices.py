"""Which GPUs each of several engines computes on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from engine.config import EngineConfig
from engine.options import OptionError
from engine.simulation.spec import is_simulated

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_DEVICE = re.compile(r"nvidia\d+")


def visible_gpus(environ: Mapping[str, str], devices: Path = Path("/dev")) -> list[str]:
    """Return this machine's NVIDIA GPUs by the names that ``CUDA_VISIBLE_DEVICES`` takes: those
    that the variable lists, or all."""
    listed = environ.get(_VARIABLE)
    if listed is not None:
        return [name for part in listed.split(",") if (name := part.strip())]
    found = sum(bool(_DEVICE.fullmatch(device.name)) for device in devices.glob("nvidia*"))
    return [str(number) for number in range(found)]


def engine_environments(config: EngineConfig, gpus: list[str]) -> list[dict[str, str]]:
    """Return the variables that pin each engine to its own GPUs: none for a single engine, or for
    engines on the CPU. Raises OptionError if there are too few GPUs."""
    engines, each = config.data_parallel_size, config.tensor_parallel_size
    on_cpu = config.device == "cpu" or is_simulated(config.model)
    if engines == 1 or on_cpu or (config.device == "auto" and not gpus):
        return [{} for _ in range(engines)]
    if len(gpus) < engines * each:
        raise OptionError(
            f"--data-parallel-size {engines} with --tensor-parallel-size {each} needs "
            f"{engines * each} GPUs, and there are {len(gpus)}; lower one of the two, or use "
            "--device cpu"
        )
    return [
        {_VARIABLE: ",".join(gpus[first : first + each])}
        for first in range(0, engines * each, each)
    ]
