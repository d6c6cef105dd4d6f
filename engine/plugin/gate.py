"""Refuses what would run over the paged KV cache, but give wrong tokens.

The rules name what an attention over blocks of tokens serves; everything else is refused, whether
it is known to be wrong or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn

from engine.architecture.errors import UnsupportedError
from engine.plugin.code import class_code
from engine.plugin.config import AttentionLayer
from engine.plugin.probe import AttentionCall

# Kinds of layers whose attention is causal and complete, or over a window.
SERVED_LAYER_TYPES = ("full_attention", "sliding_attention")
# Kinds of layers that keep a state, where one of its modules is known to (``mixers``); they may
# attend as well.
STATE_LAYER_TYPES = ("linear_attention", "conv", "mamba", "hybrid")
# Kinds of layers that do neither.
PLAIN_LAYER_TYPES = ("mlp", "moe")
# What a module may pass to its attention. Those below the first line change nothing here.
SERVED_OPTIONS = frozenset(
    {
        *("scaling", "sliding_window", "softcap", "s_aux"),
        *("position_ids", "use_cache", "dropout", "output_attentions", "is_causal"),
    }
)
# What modules may do with a cache of transformers, which is absent here: keep keys and values, and
# count them. Anything else keeps more than keys and values.
SERVED_CACHE_METHODS = frozenset(
    {
        *("update", "get_seq_length", "get_query_offset", "get_mask_sizes", "layers"),
        *("self_attention_cache", "cross_attention_cache", "is_updated"),
    }
)
_CACHE_METHOD = re.compile(
    r"\b(?:cache|past_key_values?|past_key_value|layer_past|cache_params)\.(\w+)"
)
_STATE = re.compile(r"\b(?:conv_states?|recurrent_states?|ssm_states?|cache_params)\b")


def attention_layers(
    model: nn.Module, config: Any, calls: Iterable[AttentionCall], keeping: Mapping[str, int]
) -> tuple[AttentionLayer, ...]:
    """Return the layers of a probed ``model`` that attend. ``keeping``: its ``mixers``. Raises
    UnsupportedError if it cannot be served."""
    calls = list(calls)
    name = type(model).__name__
    for problem in _problems(model, config, calls, keeping):
        raise UnsupportedError(f"{name} cannot be served: {problem}")
    return tuple(
        AttentionLayer(
            number=number,
            module=call.module,
            num_heads=call.num_heads,
            num_kv_heads=call.num_kv_heads,
            key_dim=call.key_dim,
            value_dim=call.value_dim,
            window=call.options.get("sliding_window"),
        )
        for number, call in enumerate(calls)
    )


def _problems(
    model: nn.Module, config: Any, calls: list[AttentionCall], keeping: Mapping[str, int]
) -> Iterator[str]:
    """Yield why it cannot be served, the most telling reason first."""
    for call in calls:
        yield from _call_problems(call)
    yield from _layer_type_problems(config)
    yield from _cache_problems(model, keeping)
    if not calls:
        yield "none of its layers attends through transformers' attention interface"
    elif len({call.layer for call in calls}) < len(calls):
        yield (
            f"its attention is called {len(calls)} times for {len({c.layer for c in calls})} "
            "layers, where each needs a separate KV cache"
        )
    yield from _coverage_problems(config, {call.layer for call in calls}, set(keeping.values()))


def _coverage_problems(config: Any, attending: set[int | None], keeping: set[int]) -> Iterator[str]:
    """``attending`` and ``keeping``: the layers that do."""
    count = getattr(config, "num_hidden_layers", 0)
    types = getattr(config, "layer_types", None) or [""] * count
    plain = {number for number, kind in enumerate(types) if kind in PLAIN_LAYER_TYPES}
    known = attending | keeping | plain
    if known != set(range(count)):
        yield (
            f"{len(attending)} of its {count} layers attend and {len(keeping)} keep a state, and "
            "what the others do is unknown"
        )
    for number, kind in enumerate(types):
        if kind in SERVED_LAYER_TYPES and number not in attending:
            yield f"layer {number} is of type {kind}, but does not attend"
        if kind in STATE_LAYER_TYPES and number not in keeping:
            yield f"layer {number} is of type {kind}, but where it keeps its state is unknown"


def _layer_type_problems(config: Any) -> Iterator[str]:
    served = (*SERVED_LAYER_TYPES, *STATE_LAYER_TYPES, *PLAIN_LAYER_TYPES)
    types = set(getattr(config, "layer_types", None) or ()) - set(served)
    if types:
        yield (
            f"it has layers of type {', '.join(sorted(types))}, and supported are "
            f"{', '.join(served)}"
        )


def _cache_problems(model: nn.Module, keeping: Mapping[str, int]) -> Iterator[str]:
    known = {type(model.get_submodule(name)) for name in keeping}
    kinds = {type(part) for part in model.modules()} - known
    for kind in sorted(kinds, key=lambda each: each.__name__):
        source = class_code(kind)
        kept = set(_CACHE_METHOD.findall(source)) - SERVED_CACHE_METHODS
        kept |= set(_STATE.findall(source))
        if keeping:  # others pass the cache on, and ask whether there is a state
            kept -= {"cache_params", "has_previous_state"}
        if kept:
            yield f"its {kind.__name__} keeps more than keys and values ({', '.join(sorted(kept))})"


def _call_problems(call: AttentionCall) -> Iterator[str]:
    if not call.is_causal:
        yield "it is an encoder, whose tokens attend to later ones"
    if call.has_mask:
        yield f"{call.module} attends under a separate mask"
    unknown = set(call.options) - SERVED_OPTIONS
    if unknown:
        yield f"{call.module} attends with {', '.join(sorted(unknown))}, which is not supported"
    if call.options.get("is_causal") is False:
        yield f"{call.module} attends to later tokens"
    if call.num_heads % call.num_kv_heads:
        yield f"{call.module} shares {call.num_kv_heads} key heads among {call.num_heads} heads"
    window = call.options.get("sliding_window")
    if window is not None and (not isinstance(window, int) or window < 1):
        yield f"{call.module} attends to a window of {window!r} tokens"
