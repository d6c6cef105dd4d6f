"""Runs a model without weights, to find which layers attend and to what.

On torch's meta device shapes are computed and no values. That it runs there at all also shows that
a step never waits for the device: reading a value there is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from engine.architecture.errors import UnsupportedError
from engine.plugin.body import SplitModel
from engine.plugin.building import first_line
from engine.plugin.inline import use_interface
from engine.plugin.interface import NO_EXPERTS, is_no_mask, set_attention

_TOKENS = 3


class AttentionCall(NamedTuple):
    """What a module passed to its attention. Sizes are elements; ``layer``: its ``layer_idx``;
    ``options``: those that are not None."""

    module: str
    layer: int | None
    is_causal: bool
    num_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    has_mask: bool
    options: dict[str, Any]


class Probed(NamedTuple):
    """``calls``: of the attention, in order; sizes of a final state and of its logits."""

    calls: list[AttentionCall]
    hidden_size: int
    vocab_size: int


def probe(model: nn.Module) -> Probed:
    """Return what a forward pass of a ``model`` on the meta device shows. Raises UnsupportedError
    when it cannot run like that."""
    calls: list[AttentionCall] = []
    names = {part: name for name, part in model.named_modules()}

    def record(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        options: Mapping[str, Any],
    ) -> Tensor:
        calls.append(
            AttentionCall(
                names[module],
                getattr(module, "layer_idx", None),
                getattr(module, "is_causal", True) is not False,
                query.shape[1],
                key.shape[1],
                query.shape[-1],
                value.shape[-1],
                not is_no_mask(mask),
                {name: given for name, given in options.items() if given is not None},
            )
        )
        return query.new_empty(1, query.shape[2], query.shape[1], value.shape[-1])

    use_interface(model)
    for part in names:
        set_attention(part, record)
    try:
        _leave_out_experts(model)
        hidden, logits = _run(model)
    except UnsupportedError:
        raise
    except Exception as error:
        raise UnsupportedError(
            f"{type(model).__name__} cannot run in steps of several sequences ({first_line(error)})"
        ) from error
    return Probed(calls, hidden.shape[-1], logits.shape[-1])


def _leave_out_experts(model: Any) -> None:
    """Which experts a token goes to is known only with weights."""
    if model._can_set_experts_implementation():
        model.set_experts_implementation(NO_EXPERTS)


def _run(model: nn.Module) -> tuple[Tensor, Tensor]:
    split = SplitModel(model)
    try:
        if not split.takes_positions:
            raise UnsupportedError(
                f"{type(model).__name__} cannot run in steps of several sequences: it takes no "
                "positions of tokens, so it cannot tell the sequences apart"
            )
        with torch.inference_mode(), torch.device("meta"):
            ids = torch.zeros(_TOKENS, dtype=torch.int64)
            hidden = split.hidden_states(ids, torch.arange(_TOKENS))
            return hidden, split.logits(hidden)
    finally:
        split.whole()
