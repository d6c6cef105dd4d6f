"""Whether the kernels can run here. Imports triton only where they might."""

from __future__ import annotations

import importlib.util
import logging
import os

import torch

from engine.architecture.config import ModelConfig
from engine.architecture.features import Feature

_log = logging.getLogger(__name__)

# What the kernels compute besides a plain Llama; a model with anything else is left to torch.
SERVED_BY_KERNELS = frozenset(
    {Feature.ROPE_BY_LAYER, Feature.PARTIAL_ROPE, Feature.TENSOR_NAMES, Feature.EXPERTS}
)
# The widest head that fits a tile.
_MAX_HEAD_DIM = 256
# The first compute capability for which triton compiles 8-bit floats.
_FIRST_WITH_FP8 = (8, 9)
_INTERPRET = "TRITON_INTERPRET"


class KernelsUnavailableError(RuntimeError):
    """The kernels cannot run; the message says why."""


def require_kernels(device: torch.device, *, is_cache_fp8: bool = False) -> None:
    """Raise KernelsUnavailableError if kernels cannot run on ``device``. A GPU needs triton and a C
    compiler; a CPU can only run them in triton's interpreter."""
    if importlib.util.find_spec("triton") is None:
        raise KernelsUnavailableError("triton is not installed")
    # Triton's own reading: these are true, case does not matter.
    interprets = os.environ.get(_INTERPRET, "").lower() in ("1", "true", "on", "yes", "y")
    if device.type != "cuda":
        if not interprets:
            raise KernelsUnavailableError(
                f"triton compiles for GPUs only ({_INTERPRET}=1 interprets, very slowly)"
            )
        return
    if interprets:
        raise KernelsUnavailableError(
            f"{_INTERPRET} is set, so kernels would be interpreted, not compiled; unset it"
        )
    if is_cache_fp8:
        _require_fp8(device)
    _require_compiler(device)


def prepare_early_launch(*, wanted: bool) -> None:
    """Let kernels start before those before them have ended (programmatic dependent launch), if
    ``wanted``, if the device can, and if a trial keeps their order. If not, kernels run one after
    another; a failed trial is one sentence in the log."""
    from engine.gpu.kernels.launch import early_launch, set_early_launch
    from engine.gpu.kernels.trial import run_chain

    set_early_launch(wanted)
    if not early_launch()["EARLY"]:
        return
    try:
        run_chain(torch.device("cuda", torch.cuda.current_device()))
    except Exception as error:
        set_early_launch(False)
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        _log.warning("kernels are launched one after another, which is slower: %s", reason)


def _require_fp8(device: torch.device) -> None:
    capability = torch.cuda.get_device_capability(device)
    if capability < _FIRST_WITH_FP8:
        first, own = (".".join(map(str, each)) for each in (_FIRST_WITH_FP8, capability))
        raise KernelsUnavailableError(
            f"with --kv-cache-dtype fp8 they need compute capability {first}, and this GPU has "
            f"{own}; --kv-cache-dtype auto needs less"
        )


def _require_compiler(device: torch.device) -> None:
    """Compile something: triton builds a launcher in C, and what is missing for that shows only
    then."""
    from engine.gpu.kernels.trial import run_trial

    try:
        run_trial(device)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        raise KernelsUnavailableError(
            f"triton cannot compile a kernel here ({reason}); it needs a C compiler (gcc or clang) "
            "and Python's headers (python3-dev)"
        ) from error


def kernels_fit(config: ModelConfig) -> bool:
    """Whether the kernels support this model."""
    return config.features <= SERVED_BY_KERNELS and config.head_dim <= _MAX_HEAD_DIM
