"""Which GPUs this process may use, found without torch, which takes seconds to import."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

GPUS_VARIABLE = "CUDA_VISIBLE_DEVICES"
_DEVICE = re.compile(r"nvidia\d+")


def visible_gpus(environ: Mapping[str, str], devices: Path = Path("/dev")) -> list[str]:
    """Return this machine's NVIDIA GPUs by the names that ``CUDA_VISIBLE_DEVICES`` takes: those
    that the variable lists, or all."""
    listed = environ.get(GPUS_VARIABLE)
    if listed is not None:
        return [name for part in listed.split(",") if (name := part.strip())]
    found = sum(bool(_DEVICE.fullmatch(device.name)) for device in devices.glob("nvidia*"))
    return [str(number) for number in range(found)]
