"""Reads what Gemma 4's config.json sets for single layers.

Layers with full attention have larger heads than those with a window, and perhaps fewer key heads;
the last layers may attend to the keys and values of earlier ones.
"""

from __future__ import annotations

from dataclasses import replace

from engine.architecture.errors import UnsupportedError
from engine.architecture.features import Experts, LayerInputs, LayerSizes, Multipliers
from engine.architecture.fields import ConfigFields
from engine.architecture.layers import (
    FULL,
    MOST_SIZE,
    SLIDING,
    Layers,
    Sizes,
    by_type,
    full_every,
    layer_types,
    read_experts,
    read_window,
)
from engine.architecture.rope import RopeConfig, read_proportional

_OWN_FIELDS = frozenset({"head_dim", "num_key_value_heads"})  # that a layer may set
_THETAS = {FULL: 1_000_000.0, SLIDING: 10_000.0}


def read_gemma4(fields: ConfigFields, sizes: Sizes) -> Layers:
    if fields.values.get("use_bidirectional_attention") not in (None, False, "vision"):
        raise UnsupportedError(
            f"{fields.source}: use_bidirectional_attention is supported for images only (vision)"
        )
    types = layer_types(fields, sizes.num_layers) or full_every(6, sizes.num_layers)
    types[-1] = FULL  # as in transformers, whatever config.json says
    windows = by_type(types, read_window(fields, 512))
    if None in windows[: types.index(FULL)]:
        raise UnsupportedError(f"{fields.source}: layers with a sliding window of unknown size")
    return Layers(
        _ropes(fields, types),
        windows,
        scale=1.0,
        multipliers=Multipliers(sizes.hidden_size**0.5, rounds_embedding=True),
        experts=_experts(fields, sizes),
        sizes=_layer_sizes(fields, sizes, types),
        inputs=_inputs(fields),
        logit_cap=_logit_cap(fields),
    )


def read_gemma4_unified(fields: ConfigFields, sizes: Sizes) -> Layers:
    """The model of which image and sound are read without encoders. Layers have no inputs."""
    given = {"hidden_size_per_layer_input": 0, "sliding_window": 1024} | fields.values
    return read_gemma4(ConfigFields(fields.source, given), sizes)


def _ropes(fields: ConfigFields, types: list[str]) -> tuple[RopeConfig | None, ...]:
    given = fields.section("rope_parameters")
    if given is None:
        usual = {"rope_type": "proportional", "partial_rotary_factor": 0.25}
        given = ConfigFields(fields.source, {FULL: usual, SLIDING: {}})
    if (
        fields.has("rope_scaling")
        or fields.has("rope_theta")
        or not set(types) <= set(given.values)
    ):
        raise UnsupportedError(f"{given.source} must have rope_parameters for each type of layers")
    ropes = {}
    for kind in set(types):
        if (section := given.section(kind)) is None:
            raise UnsupportedError(f"{given.source}: {kind} has no settings")
        ropes[kind] = read_proportional(section, _THETAS[kind])
    return tuple(ropes[kind] for kind in types)


def _inputs(fields: ConfigFields) -> LayerInputs | None:
    size = fields.integer("hidden_size_per_layer_input", 256, low=0, high=MOST_SIZE)
    if size == 0:
        return None
    tokens = fields.integer("vocab_size_per_layer_input", 262144, low=1, high=MOST_SIZE)
    if tokens < fields.integer("vocab_size", 262144, low=1, high=MOST_SIZE):
        raise UnsupportedError(
            f"{fields.source}: a vocab_size_per_layer_input of {tokens}, below vocab_size, is not "
            "supported"
        )
    return LayerInputs(size, tokens)


def _logit_cap(fields: ConfigFields) -> float | None:
    if not fields.has("final_logit_softcapping"):
        return None
    return fields.number("final_logit_softcapping", low=1e-3, high=1e6)


def _experts(fields: ConfigFields, sizes: Sizes) -> Experts | None:
    if not fields.flag("enable_moe_block", False):
        return None
    inner = fields.integer("moe_intermediate_size", low=1, high=MOST_SIZE)
    chosen = ConfigFields(
        fields.source,
        fields.values | {"num_experts_per_tok": fields.integer("top_k_experts", low=1, high=4096)},
    )
    count = fields.integer("num_experts", low=1, high=4096)
    experts = read_experts(chosen, sizes, (count, 1), inner=inner, renormalised=True)
    return replace(experts, is_parallel=True)


def _layer_sizes(fields: ConfigFields, sizes: Sizes, types: list[str]) -> tuple[LayerSizes, ...]:
    own = _own_settings(fields, types)
    keys_of = _keys_of(fields, types)
    inner = fields.integer("intermediate_size", low=1, high=MOST_SIZE)
    is_wide = fields.flag("use_double_wide_mlp", False)
    value_is_key = fields.flag("attention_k_eq_v", False)
    found = tuple(
        LayerSizes(
            _kv_heads(settings, sizes),
            _head_dim(settings, sizes),
            inner * 2 if is_wide and source is not None else inner,
            source,
            value_is_key and source is None and kind == FULL,
        )
        for settings, source, kind in zip(own, keys_of, types, strict=True)
    )
    for layer in found:
        if layer.keys_of is not None:
            source = found[layer.keys_of]
            if (layer.num_kv_heads, layer.head_dim) != (source.num_kv_heads, source.head_dim):
                raise UnsupportedError(
                    f"{fields.source}: layers with heads of other sizes than those whose keys and "
                    "values they share are not supported"
                )
    return found


def _own_settings(fields: ConfigFields, types: list[str]) -> list[ConfigFields]:
    """Return what each layer sets for itself: under per_layer_config, or, as on the hub, for all
    layers with full attention."""
    nothing = ConfigFields(fields.source, {})
    given = fields.section("per_layer_config")
    if given is None:
        of_full: dict[str, object] = {
            "head_dim": fields.integer("global_head_dim", 512, low=2, high=1024)
        }
        if fields.flag("attention_k_eq_v", False):
            of_full["num_key_value_heads"] = fields.values.get("num_global_key_value_heads")
        return [ConfigFields(fields.source, of_full) if t == FULL else nothing for t in types]
    found = [given.section(str(layer)) or nothing for layer in range(len(types))]
    unknown = {name for each in found for name in each.values} - _OWN_FIELDS
    if unknown:
        raise UnsupportedError(
            f"{given.source}: {', '.join(sorted(unknown)[:5])} of a single layer are not supported"
        )
    return found


def _kv_heads(settings: ConfigFields, sizes: Sizes) -> int:
    count = settings.integer("num_key_value_heads", sizes.num_kv_heads, low=1, high=4096)
    if sizes.num_heads % count:
        expected = f"a divisor of its {sizes.num_heads} heads"
        raise settings.error("num_key_value_heads", expected, count)
    return count


def _head_dim(settings: ConfigFields, sizes: Sizes) -> int:
    size = settings.integer("head_dim", sizes.head_dim, low=2, high=1024)
    if size % 2:
        raise settings.error("head_dim", "even, as rotary embeddings turn pairs", size)
    return size


def _keys_of(fields: ConfigFields, types: list[str]) -> list[int | None]:
    """Return the layer whose keys and values each attends to: of the last num_kv_shared_layers, the
    last layer of its type before these; None: its own."""
    shared = fields.integer("num_kv_shared_layers", 0, low=0, high=len(types))
    first = len(types) - shared
    last = {kind: layer for layer, kind in enumerate(types[:first])}
    if set(last) != set(types):
        raise UnsupportedError(
            f"{fields.source}: num_kv_shared_layers {shared} leaves no layer of some type to share "
            "keys and values of"
        )
    return [None if layer < first else last[kind] for layer, kind in enumerate(types)]
