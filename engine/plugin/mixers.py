"""Layers that keep a state (recurrent attention, convolutions), one sequence at a time.

transformers' modules for these take one sequence with its cache. In a step of several, each one's
rows are computed in turn, with a cache of transformers that holds this sequence's states alone.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from engine.plugin.code import class_code

# What a module calls that keeps a state in a cache, and by which name it is given the cache.
_KEEPS = re.compile(r"\.update_(?:conv|recurrent|ssm)_state\(")
# Kimi's delta attention has a decay for each channel of each pair of tokens in a chunk: with the
# heads of Kimi-Linear, 3 MiB of memory for each token that it computes at once.
_IS_WIDE = re.compile(r"\bchunk_kimi_delta_attention\(")
_MOST_WIDE_TOKENS = 128  # whole chunks
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
        is_wide = _IS_WIDE.search(class_code(type(module))) is not None
        most = _MOST_WIDE_TOKENS if is_wide else None
        module.forward = _in_turn(module.forward, cache_name, runs, most)


def _in_turn(
    forward: Callable[..., Any], cache_name: str, runs: Runs, most: int | None
) -> Callable[..., Any]:
    """``most``: tokens of a sequence to compute at once; None: all of them."""
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
            forward(hidden_states[:, part.first : part.last], **{cache_name: part.state}, **shared)
            for run in runs.now
            for part in _parts(run, most)
        ]
        if isinstance(outputs[0], tuple):
            return torch.cat([out[0] for out in outputs], 1), None
        return torch.cat(outputs, 1)

    return one_by_one


def _parts(run: SequenceRows, most: int | None) -> Iterator[SequenceRows]:
    size = most or run.last - run.first
    for first in range(run.first, run.last, size):
        yield SequenceRows(first, min(run.last, first + size), run.state)


def _cache_name(module: nn.Module) -> str | None:
    accepted = inspect.signature(module.forward).parameters
    return next((name for name in _CACHE_NAMES if name in accepted), None)
