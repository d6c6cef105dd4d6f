"""Reads what Llama 4's config.json sets for single layers.

Layers with rotary embeddings, usually three of four, attend within chunks; the others attend to all
tokens before, with queries that are scaled by their position. Some layers have a mixture of
experts, or all, or none.
"""

from __future__ import annotations

from dataclasses import replace

from engine.architecture.errors import UnsupportedError
from engine.architecture.features import AttentionChunk, AttentionWindow, Experts, QueryScaling
from engine.architecture.fields import ConfigFields
from engine.architecture.layers import (
    FULL,
    MOST_SIZE,
    Layers,
    Sizes,
    layer_types,
    read_experts,
    turned_layers,
)
from engine.architecture.rope import read_rope

CHUNKED = "chunked_attention"
_MOST = 1 << 30


def read_llama4(fields: ConfigFields, sizes: Sizes) -> Layers:
    rope = read_rope(fields, sizes.positions, 500_000.0)
    # An empty list means the same as none.
    turned = turned_layers(fields, sizes.num_layers, fields.values.get("no_rope_layers") or None)
    return Layers(
        tuple(rope if turns else None for turns in turned),
        _windows(fields, turned),
        query_scaling=None if all(turned) else _query_scaling(fields),
        experts=_experts(fields, sizes),
        inner=fields.integer("intermediate_size_mlp", 16384, low=1, high=MOST_SIZE),
        rotated_norms=fields.flag("use_qk_norm", True) and any(turned),
    )


def _windows(fields: ConfigFields, turned: list[bool]) -> tuple[AttentionWindow, ...]:
    chunk = None
    if "attention_chunk_size" not in fields.values or fields.has("attention_chunk_size"):
        size = fields.integer("attention_chunk_size", 8192, low=1, high=_MOST)
        chunk = AttentionChunk(size)
    types = layer_types(fields, len(turned), (FULL, CHUNKED))
    if types is None:
        return tuple(chunk if turns else None for turns in turned)
    if chunk is None and CHUNKED in types:
        raise UnsupportedError(f"{fields.source}: {CHUNKED} in chunks of unknown size")
    return tuple(chunk if kind == CHUNKED else None for kind in types)


def _query_scaling(fields: ConfigFields) -> QueryScaling | None:
    """A number other than zero, as in the first release, means true."""
    tuning = fields.values.get("attn_temperature_tuning")
    if tuning is not None and not isinstance(tuning, int):
        raise fields.error("attn_temperature_tuning", "true, false or an integer", tuning)
    if tuning is not None and not tuning:
        return None
    return QueryScaling(
        fields.number("attn_scale", 0.1, low=0.0, high=1e3),
        fields.integer("floor_scale", 8192, low=1, high=_MOST),
        offset=1,
        is_unrotated=True,
    )


def _experts(fields: ConfigFields, sizes: Sizes) -> Experts | None:
    """Layers have experts if moe_layers names them; without it, each of so many."""
    named = fields.values.get("moe_layers")
    if named is None:
        step = fields.integer("interleave_moe_layer_step", 1, low=1, high=1 << 20)
        named = list(range(step - 1, sizes.num_layers, step))
    if not isinstance(named, list) or not all(isinstance(layer, int) for layer in named):
        raise fields.error("moe_layers", "a list of layers", named)
    with_experts = set(named)
    layers = tuple(layer in with_experts for layer in range(sizes.num_layers))
    if not any(layers):
        return None
    inner = fields.integer("intermediate_size", 8192, low=1, high=MOST_SIZE)
    experts = read_experts(fields, sizes, (16, 1), inner=inner, renormalised=False)
    return replace(experts, layers=layers, scales_inputs=True, has_shared=True)
