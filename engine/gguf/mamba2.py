"""What the keys of GGUF files say of Mamba-2 layers."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import MAX_HEADS, MAX_KERNEL, MAX_SIZE, ArchitectureKeys


def mamba2_fields(keys: ArchitectureKeys) -> dict[str, Any]:
    """Return the fields, by the names that Granite and Falcon-H1 have for them."""
    inner = keys.integer("ssm.inner_size", high=MAX_SIZE)
    heads = keys.integer("ssm.time_step_rank", high=MAX_HEADS)
    groups = keys.integer("ssm.group_count", high=MAX_HEADS)
    keys.require_multiple("ssm.inner_size", inner, heads)
    keys.require_multiple("ssm.time_step_rank", heads, groups)
    return {
        "mamba_n_heads": heads,
        "mamba_n_groups": groups,
        "mamba_d_state": keys.integer("ssm.state_size", high=MAX_HEADS),
        "mamba_d_head": inner // heads,
        "mamba_d_conv": keys.integer("ssm.conv_kernel", low=2, high=MAX_KERNEL),
        "mamba_conv_bias": True,
        "mamba_proj_bias": False,
    }
