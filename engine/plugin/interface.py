"""What transformers' modelling code calls instead of its attention and experts.

Each module of a model that may attend is given a function (``set_attention``); under the
implementation NAME, transformers calls it with what the module passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.moe import ExpertsInterface
from transformers.masking_utils import AttentionMaskInterface

NAME = "quire"
# Experts of this name compute nothing: a model without weights is not routed either.
NO_EXPERTS = "quire_no_experts"
_ATTRIBUTE = "quire_attention"


class AttentionFunction(Protocol):
    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        options: Mapping[str, Any],
    ) -> Tensor:
        """Attend. ``query`` [1, heads, tokens, key_dim], ``key`` [1, kv_heads, tokens, key_dim] and
        ``value`` [1, kv_heads, tokens, value_dim], after rotation and norms; the result is
        [1, tokens, heads, value_dim]. ``options``: what else the module passed."""
        ...


def set_attention(module: nn.Module, function: AttentionFunction) -> None:
    """Have ``function`` called where ``module`` attends."""
    setattr(module, _ATTRIBUTE, function)


def no_mask(device: torch.device) -> Tensor:
    """Return the mask to pass to a model: as it is four-dimensional, transformers builds no
    other from it and passes it on unchanged (``is_no_mask``)."""
    return torch.zeros(1, 1, 1, 1, device=device)


def is_no_mask(mask: object) -> bool:
    return mask is None or (isinstance(mask, Tensor) and mask.shape == (1, 1, 1, 1))


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    function: AttentionFunction | None = getattr(module, _ATTRIBUTE, None)
    if function is None:
        raise RuntimeError(f"{type(module).__name__} attends, but was not prepared for it")
    return function(module, query, key, value, attention_mask, options), None


def _no_mask_of_its_own(*arguments: object, **options: object) -> None:
    return None


def _no_experts(module: nn.Module, hidden: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
    return torch.empty_like(hidden)


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, _no_mask_of_its_own)
ExpertsInterface.register(NO_EXPERTS, _no_experts)
