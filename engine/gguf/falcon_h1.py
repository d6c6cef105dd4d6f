"""What the keys of Falcon-H1's GGUF files mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.gguf.keys import ArchitectureKeys
from engine.gguf.mamba2 import mamba2_fields
from engine.gguf.settings import plain_rope

_NORM = "blk.0.ssm_norm.weight"
# Keys of TII's own converter, which leaves the weights as they are.
_OF_TII = ("rope_theta", "embedding_multiplier")
# The converter multiplies the weights by the checkpoint's.
_MULTIPLIERS = ["attention_in", "attention_out", "embedding", "key", "lm_head", "ssm_in", "ssm_out"]


def falcon_h1(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    for key in _OF_TII:
        if keys.has(key):
            raise keys.unsupported(key, "is not supported; convert the checkpoint by llama.cpp")
    if common["tie_word_embeddings"]:
        # Embeddings are stored times their multiplier, and the head has another one.
        raise UnsupportedError(
            f"{keys.file.source} has no output.weight, which Falcon-H1 needs: the file does not "
            "say what logits are multiplied by; serve the original checkpoint"
        )
    if keys.is_set("attention.scale"):
        raise keys.unsupported("attention.scale", "is not supported")
    mamba = mamba2_fields(keys)
    _check_sizes(keys, mamba, common["num_hidden_layers"])
    return {
        "model_type": "falcon_h1",
        **mamba,
        "mamba_d_ssm": mamba["mamba_n_heads"] * mamba["mamba_d_head"],
        "mamba_rms_norm": _NORM in keys.header.tensors,
        "mamba_norm_before_gate": False,  # as by llama.cpp
        "projectors_bias": False,
        **{f"{name}_multiplier": 1.0 for name in _MULTIPLIERS},
        "mlp_multipliers": [1.0] * 2,
        "ssm_multipliers": [1.0] * 5,
        **plain_rope(keys, common),
    }


def _check_sizes(keys: ArchitectureKeys, mamba: dict[str, Any], layers: int) -> None:
    """Raise ConfigError unless each layer's first matrix has the size that the keys give: each
    layer of transformers' model has a multiplier for each of its rows, not only as a weight."""
    heads, states = mamba["mamba_n_heads"], mamba["mamba_n_groups"] * mamba["mamba_d_state"]
    rows = 2 * heads * mamba["mamba_d_head"] + 2 * states + heads
    for layer in range(layers):
        name = f"blk.{layer}.ssm_in.weight"
        found = keys.header.tensors.get(name)
        if found is None:
            raise ConfigError(f"{keys.file.source}: {name} is missing")
        if found.shape[0] != rows:
            raise ConfigError(
                f"{keys.file.source}: {name} has {found.shape[0]} rows, and must have {rows} by "
                f"the keys {keys.prefix}.ssm"
            )
