"""Layers that keep a state (recurrent attention, convolutions), one sequence at a time.

transformers' modules for these take one sequence with its cache. In a step of several, each one's
rows are computed in turn, with a cache of transformers that holds this sequence's states alone.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from engine.plugin.code import class_code

# What a module calls that keeps a state in a cache, and by which name it is given the cache.
_KEEPS = re.compile(r"\.update_(?:conv|recurrent|ssm)_state\(")
_CACHE_NAMES = ("cache", "cache_params", "past_key_values", "past_key_value")
# What concerns all rows of a step together. One sequence alone needs none of it.
_OF_THE_STEP = frozenset({*_CACHE_NAMES, "attention_mask", "position_ids", "cache_position"})


@dataclass(slots=True)
class SequenceRows:
    """Rows [first, last) of a step belong to one sequence, whose cache is ``state``."""

    first: int
    last: int
    state: Any


@dataclass(slots=True)
class Runs:
    """The runs of the step being computed."""

    now: list[SequenceRows] = field(default_factory=list)


def mixers(model: nn.Module) -> dict[str, int]:
    """Return the modules of ``model`` that keep a state, by name, with their layer's number."""
    found = {}
    for name, module in model.named_modules():
        index = getattr(module, "layer_idx", None)
        if index is not None and _cache_name(module) and _KEEPS.search(class_code(type(module))):
            found[name] = int(index)
    return found


def take_turns(model: nn.Module, names: Iterable[str], runs: Runs) -> None:
    """Let the named modules compute one sequence after the other."""
    for name in names:
        module = model.get_submodule(name)
        cache_name = _cache_name(module)
        assert cache_name is not None
        module.forward = _in_turn(module.forward, cache_name, runs)


def _in_turn(forward: Callable[..., Any], cache_name: str, runs: Runs) -> Callable[..., Any]:
    accepted = inspect.signature(forward).parameters

    def one_by_one(hidden_states: Tensor, *arguments: object, **options: object) -> Any:
        """``hidden_states``: [1, rows, hidden]."""
        if arguments:
            raise TypeError("a layer with a state is called with unnamed arguments")
        shared = {
            name: value
            for name, value in options.items()
            if name in accepted and name not in _OF_THE_STEP and value is not None
        }
        if any(isinstance(value, Tensor) for value in shared.values()):
            raise TypeError(f"a layer with a state is given tensors: {', '.join(sorted(shared))}")
        outputs = [
            forward(hidden_states[:, run.first : run.last], **{cache_name: run.state}, **shared)
            for run in runs.now
        ]
        if isinstance(outputs[0], tuple):
            return torch.cat([out[0] for out in outputs], 1), None
        return torch.cat(outputs, 1)

    return one_by_one


def _cache_name(module: nn.Module) -> str | None:
    accepted = inspect.signature(module.forward).parameters
    return next((name for name in _CACHE_NAMES if name in accepted), None)
