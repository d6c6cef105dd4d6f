"""What the keys of a Gemma 3n file mean in config.json."""

from __future__ import annotations

import math
from typing import Any

from engine.gguf.gemma4 import per_layer_inputs
from engine.gguf.keys import ArchitectureKeys
from engine.gguf.settings import FULL, SLIDING, must_be, refuse_scaling, window_fields

_LAUREL = "blk.0.laurel_l.weight"


def gemma3n(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    refuse_scaling(keys, common)
    must_be(keys, "altup.active_idx", 0)
    if not keys.file.flag(keys.name("altup.correct_scale"), True):
        raise keys.unsupported("altup.correct_scale", "false is not supported; it must be true")
    count = common["num_hidden_layers"]
    layers = window_fields(keys, count, 5)
    laurel = keys.header.tensors.get(_LAUREL)  # loading names it if it is missing
    ollamas = keys.number("rope.freq_base_local", 10000.0, low=1e-3, high=1e12)
    local = keys.number("rope.freq_base_swa", ollamas, low=1e-3, high=1e12)
    return {
        "model_type": "gemma3n_text",
        "hidden_activation": "gelu_pytorch_tanh",
        **layers,
        "num_kv_shared_layers": _sharing(keys, layers["layer_types"]),
        "altup_active_idx": 0,
        "altup_num_inputs": keys.integer("altup.num_inputs", low=2, high=64),
        "altup_correct_scale": True,
        "laurel_rank": laurel.shape[0] if laurel is not None else 64,
        "activation_sparsity_pattern": _sparsity(keys, count),
        "final_logit_softcapping": keys.number("final_logit_softcapping", 30.0, low=1e-3, high=1e6),
        **per_layer_inputs(keys, least=1),
        "rope_scaling": None,
        "rope_parameters": {
            FULL: {"rope_type": "default", "rope_theta": common["rope_theta"]},
            SLIDING: {"rope_type": "default", "rope_theta": local},
        },
    }


def _sharing(keys: ArchitectureKeys, types: list[str]) -> int:
    """Return how many layers use keys and values of layers before them. The first files have a
    float."""
    key, most = "attention.shared_kv_layers", len(types) - 1
    shared = keys.number(key, low=0, high=most)
    if not shared.is_integer():
        raise keys.file.error(keys.name(key), f"an integer from 0 to {most}", shared)
    count = int(shared)
    if {*types} != {*types[: len(types) - count]}:
        raise keys.unsupported(
            key,
            f"is {count}, but no layer before these has the same type and could share with them",
        )
    return count


def _sparsity(keys: ArchitectureKeys, count: int) -> list[float]:
    """Return the share of activations that each layer sets to zero. The file has the quantile of
    the normal distribution, which for 0 is minus infinity."""
    name = keys.name("activation_sparsity_scale")
    scales = keys.file.numbers(name)
    # Published ones are below 2; with 4, a layer keeps 1 of 30,000 activations.
    if len(scales) != count or not all(scale <= 4 for scale in scales):
        raise keys.file.error(name, f"an array of {count} numbers, 4 at most", scales)
    return [round((1 + math.erf(scale / math.sqrt(2))) / 2, 6) for scale in scales]
