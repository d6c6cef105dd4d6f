"""Which GPUs each of several engines computes on."""

from __future__ import annotations

from engine.config import EngineConfig
from engine.device.visible import GPUS_VARIABLE
from engine.options import OptionError
from engine.simulation.spec import is_simulated


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
        {GPUS_VARIABLE: ",".join(gpus[first : first + each])}
        for first in range(0, engines * each, each)
    ]
