"""Attention that modelling code computes itself, without transformers' interface.

For the families here we replace the attention in that code by a call of the interface. What comes
before and after it is still computed by transformers' modules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from engine.architecture.errors import UnsupportedError
from engine.plugin.interface import NAME, attend

_OWN = "eager"  # what transformers calls the attention of the modelling code
# Of GPT-Neo, which makes a mask of positions by positions for each layer.
_MOST_POSITIONS = 4096


def implementation(config: Any) -> str:
    """Return the attention to build a model with. Raises UnsupportedError."""
    if config.model_type not in _MODEL_TYPES:
        return NAME
    if getattr(config, "alibi", False):
        raise UnsupportedError(f"{config.model_type} with ALiBi is not supported")
    if config.model_type == "gpt_neo" and config.max_position_embeddings > _MOST_POSITIONS:
        raise UnsupportedError(
            f"config.json: max_position_embeddings is {config.max_position_embeddings}; gpt_neo is "
            f"supported up to {_MOST_POSITIONS}"
        )
    return _OWN


def use_interface(model: nn.Module) -> None:
    """Have every part of ``model`` attend through the interface."""
    for module in model.modules():
        forward = _FORWARDS.get(type(module).__name__)
        if forward is not None:
            part: Any = module
            part.forward = partial(forward, part)
            if forward is _gpt_neo:
                part.layer_idx = part.layer_id
                part.bias = None  # the mask, which nothing reads now


def _falcon(
    module: Any,
    hidden_states: Tensor,
    *,
    attention_mask: Tensor | None,
    position_embeddings: tuple[Tensor, Tensor],
    **ignored: object,
) -> tuple[Tensor, None]:
    found = module._split_heads(module.query_key_value(hidden_states))
    query, key, value = (each.transpose(1, 2) for each in found)
    if module.new_decoder_architecture:  # each is there once for every query head that it serves
        shared = module.num_heads // module.num_kv_heads
        key, value = key[:, ::shared], value[:, ::shared]
    rotated = sys.modules[type(module).__module__].apply_rotary_pos_emb
    query, key = rotated(query, key, *position_embeddings)
    out, _ = attend(module, query, key, value, attention_mask)
    return module.dense(out.flatten(2)), None


def _xglm(
    module: Any, hidden_states: Tensor, *, attention_mask: Tensor | None, **ignored: object
) -> tuple[Tensor, None]:
    query, key, value = (
        project(hidden_states).unflatten(-1, (module.num_heads, module.head_dim)).transpose(1, 2)
        for project in (module.q_proj, module.k_proj, module.v_proj)
    )
    out, _ = attend(module, query, key, value, attention_mask, scaling=module.scaling)
    return module.out_proj(out.flatten(2)), None


def _gpt_neo(
    module: Any, hidden_states: Tensor, *, attention_mask: Tensor | None, **ignored: object
) -> tuple[Tensor, None]:
    query, key, value = (
        project(hidden_states).unflatten(-1, (module.num_heads, module.head_dim)).transpose(1, 2)
        for project in (module.q_proj, module.k_proj, module.v_proj)
    )
    window = module.config.window_size if module.attention_type == "local" else None
    out, _ = attend(module, query, key, value, attention_mask, scaling=1.0, sliding_window=window)
    return module.out_proj(out.flatten(2)), None


_MODEL_TYPES = ("falcon", "gpt_neo", "xglm")
_FORWARDS: dict[str, Callable[..., tuple[Tensor, None]]] = {
    "FalconAttention": _falcon,
    "GPTNeoSelfAttention": _gpt_neo,
    "XGLMAttention": _xglm,
}
