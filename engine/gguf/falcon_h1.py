"""What the keys of Falcon-H1's GGUF files mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.architecture.errors import UnsupportedError
from engine.gguf.keys import ArchitectureKeys
from engine.gguf.mamba2 import mamba2_fields
from engine.gguf.settings import plain_rope

_NORM = "blk.0.ssm_norm.weight"
# The converter multiplies the weights by the checkpoint's.
_MULTIPLIERS = ["attention_in", "attention_out", "embedding", "key", "lm_head", "ssm_in", "ssm_out"]


def falcon_h1(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    if _NORM in keys.header.tensors:
        # Files do not say whether the gate comes before the norm.
        raise UnsupportedError(
            f"{keys.file.source}: {_NORM} is not supported; serve the original checkpoint"
        )
    if keys.is_set("attention.scale"):
        raise keys.unsupported("attention.scale", "is not supported")
    mamba = mamba2_fields(keys)
    return {
        "model_type": "falcon_h1",
        **mamba,
        "mamba_d_ssm": mamba["mamba_n_heads"] * mamba["mamba_d_head"],
        "mamba_rms_norm": False,
        "projectors_bias": False,
        **{f"{name}_multiplier": 1.0 for name in _MULTIPLIERS},
        "mlp_multipliers": [1.0] * 2,
        "ssm_multipliers": [1.0] * 5,
        **plain_rope(keys, common),
    }
