"""A causal language model of transformers in two halves: hidden states, then their logits."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from engine.plugin.interface import no_mask
from engine.plugin.products import CompiledLinear


class _Given:
    """A body's output that consists of given final states only."""

    def __init__(self, hidden: Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, index: int) -> Tensor:
        if index != 0:
            raise IndexError(index)
        return self.last_hidden_state

    def __getattr__(self, name: str) -> None:
        return None


class _Repeats(nn.Module):
    """Takes the body's place: returns the states that it was given last."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.hidden: Tensor | None = None
        self._body = (body,)  # in a tuple, so that it does not become a part of this module

    def __getattr__(self, name: str) -> Any:
        """Some heads read a factor from their body."""
        if name == "_body":
            raise AttributeError(name)
        return getattr(self._body[0], name)

    def forward(self, *arguments: object, **options: object) -> _Given:
        assert self.hidden is not None
        return _Given(self.hidden)


class SplitModel:
    """``causal``: a model ``…ForCausalLM``, whose body is replaced. The head's own code thus
    computes logits, with whatever scaling and caps a family has there."""

    def __init__(self, causal: Any) -> None:
        self.causal: nn.Module = causal
        self.body: nn.Module = _body(causal)
        path = next(name for name, part in causal.named_modules() if part is self.body)
        parent, _, self._name = path.rpartition(".")
        self._parent = causal.get_submodule(parent)
        self._repeats = _Repeats(self.body)
        setattr(self._parent, self._name, self._repeats)
        self._mask = no_mask(next(self.body.parameters()).device)

    @property
    def takes_positions(self) -> bool:
        """False: tokens are numbered as they come, by their order and by transformers' cache."""
        return "position_ids" in inspect.signature(self.body.forward).parameters

    def hidden_states(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """[tokens, hidden] of ``token_ids`` and ``positions`` [tokens]."""
        out: Any = self.body(
            input_ids=token_ids[None],
            position_ids=positions[None],
            attention_mask=self._mask,
            use_cache=False,
        )
        hidden: Tensor = out.last_hidden_state[0]
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, vocabulary] of ``hidden`` [rows, hidden]."""
        self._repeats.hidden = hidden[None]
        count = hidden.shape[0]
        ids = torch.zeros(1, count, dtype=torch.int64, device=hidden.device)
        out: Any = self.causal(input_ids=ids, position_ids=ids, use_cache=False)
        self._repeats.hidden = None
        logits: Tensor = out.logits[0]
        return logits

    def whole(self) -> nn.Module:
        """Return the model with its body in place again; this object is then of no more use."""
        setattr(self._parent, self._name, self.body)
        return self.causal


def _body(causal: Any) -> nn.Module:
    """Return the part that computes hidden states; not every family has it where it says."""
    decoder = causal.get_decoder()
    if decoder is causal or type(decoder) in (nn.Linear, CompiledLinear):
        decoder = getattr(causal, "model", None)
    if not isinstance(decoder, nn.Module):
        raise TypeError("its layers and its head are one part")
    return decoder
