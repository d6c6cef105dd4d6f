"""Reads what a Llama-like model's config.json sets for single layers, family by family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.architecture.features import (
    NO_MULTIPLIERS,
    AttentionWindow,
    Experts,
    LayerInputs,
    LayerSizes,
    Multipliers,
    QueryScaling,
)
from engine.architecture.fields import ConfigFields
from engine.architecture.rope import (
    RopeConfig,
    read_long_rope,
    read_rope,
    read_scaling,
    read_text_rope,
)

_MOST = 1 << 30
MOST_SIZE = 1 << 24
_MOST_EXPERTS = 1 << 17  # of all layers: each has a few names
FULL, SLIDING = "full_attention", "sliding_attention"


class Sizes(NamedTuple):
    """Of a model; ``positions``: the most tokens of a sequence."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    positions: int


@dataclass(frozen=True, slots=True)
class Layers:
    """What may differ by layer, one element for each, and what only some families have.
    ``scale``: of scores; None: the inverse root of a head's size. ``sizes``: if they differ.
    ``inner``: elements of a feed-forward, if that is not what ``intermediate_size`` means."""

    ropes: tuple[RopeConfig | None, ...]
    windows: tuple[AttentionWindow, ...]
    scale: float | None = None
    multipliers: Multipliers = NO_MULTIPLIERS
    query_scaling: QueryScaling | None = None
    experts: Experts | None = None
    sizes: tuple[LayerSizes, ...] = ()
    inputs: LayerInputs | None = None
    logit_cap: float | None = None
    inner: int | None = None
    rotated_norms: bool = False


Reader = Callable[[ConfigFields, Sizes], Layers]


def read_plain(fields: ConfigFields, sizes: Sizes) -> Layers:
    return _uniform(read_rope(fields, sizes.positions), sizes)


def _uniform(rope: RopeConfig, sizes: Sizes, window: int | None = None) -> Layers:
    return Layers((rope,) * sizes.num_layers, (window,) * sizes.num_layers)


def read_window(fields: ConfigFields, default: int | None) -> int | None:
    """Return ``sliding_window``, where null means none, and its absence ``default``."""
    if not fields.has("sliding_window"):
        return None if "sliding_window" in fields.values else default
    return fields.integer("sliding_window", low=1, high=_MOST)


def layer_types(
    fields: ConfigFields, num_layers: int, served: tuple[str, ...] = (FULL, SLIDING)
) -> list[str] | None:
    types = fields.strings("layer_types")
    if types is None:
        return None
    if len(types) != num_layers:
        raise fields.error("layer_types", f"{num_layers} strings, one a layer", types)
    unknown = set(types) - set(served)
    if unknown:
        raise UnsupportedError(
            f"{fields.source}: layer_types {', '.join(sorted(unknown))} are not supported; "
            f"supported: {', '.join(served)}"
        )
    return types


def by_type(types: list[str], window: int | None) -> tuple[int | None, ...]:
    return tuple(window if kind == SLIDING else None for kind in types)


def read_mistral(fields: ConfigFields, sizes: Sizes) -> Layers:
    """Every layer has the window."""
    return _uniform(read_rope(fields, sizes.positions), sizes, read_window(fields, 4096))


def read_qwen(fields: ConfigFields, sizes: Sizes) -> Layers:
    """Under use_sliding_window, the layers that layer_types names have the window, else those from
    max_window_layers on."""
    return replace(read_plain(fields, sizes), windows=_qwen_windows(fields, sizes.num_layers, 28))


def _qwen_windows(fields: ConfigFields, num_layers: int, first: int) -> tuple[int | None, ...]:
    """``first``: the default of max_window_layers."""
    window = read_window(fields, 4096) if fields.flag("use_sliding_window", False) else None
    if window is None:
        return (None,) * num_layers
    types = layer_types(fields, num_layers)
    if types is None:
        first = fields.integer("max_window_layers", first, low=0, high=_MOST)
        types = [SLIDING if i >= first else FULL for i in range(num_layers)]
    return by_type(types, window)


def read_qwen_vl(fields: ConfigFields, sizes: Sizes) -> Layers:
    """The text model of Qwen2-VL and Qwen2.5-VL."""
    plain = _uniform(read_text_rope(fields, sizes.positions, 1_000_000.0), sizes)
    return replace(plain, windows=_qwen_windows(fields, sizes.num_layers, 80))


def read_qwen3_vl(fields: ConfigFields, sizes: Sizes) -> Layers:
    return _uniform(read_text_rope(fields, sizes.positions, 500_000.0), sizes)


def read_smollm3(fields: ConfigFields, sizes: Sizes) -> Layers:
    """Some layers have no rotary embeddings: where no_rope_layers is 0, else every few."""
    count = sizes.num_layers
    if SLIDING in (layer_types(fields, count) or []):
        raise UnsupportedError(f"{fields.source}: layers with a sliding window are not supported")
    rope = read_rope(fields, sizes.positions, 2_000_000.0)
    turned = turned_layers(fields, count, fields.values.get("no_rope_layers"))
    return Layers(tuple(rope if turns else None for turns in turned), (None,) * count)


def turned_layers(fields: ConfigFields, count: int, flags: object) -> list[bool]:
    """Return which of ``count`` layers have rotary embeddings. ``flags``: ``no_rope_layers``; None:
    each ``no_rope_layer_interval``-th layer has none."""
    if flags is None:
        interval = fields.integer("no_rope_layer_interval", 4, low=1, high=1 << 20)
        return [(layer + 1) % interval != 0 for layer in range(count)]
    if not isinstance(flags, list) or len(flags) < count or any(f not in (0, 1) for f in flags):
        raise fields.error("no_rope_layers", f"{count} zeros and ones, one a layer", flags)
    return [bool(flag) for flag in flags[:count]]


def read_phi3(fields: ConfigFields, sizes: Sizes) -> Layers:
    rope = read_long_rope(fields, sizes.positions, sizes.head_dim)
    return _uniform(rope, sizes, read_window(fields, None))


def read_granite(fields: ConfigFields, sizes: Sizes) -> Layers:
    def multiplier(name: str) -> float:
        return fields.number(name, 1.0, low=1e-6, high=1e6)

    return replace(
        read_plain(fields, sizes),
        scale=multiplier("attention_multiplier"),
        multipliers=Multipliers(
            multiplier("embedding_multiplier"),
            multiplier("residual_multiplier"),
            multiplier("logits_scaling"),
        ),
    )


def read_olmo3(fields: ConfigFields, sizes: Sizes) -> Layers:
    """Three layers of four have the window; only the others' rotary embeddings are scaled."""
    types = layer_types(fields, sizes.num_layers) or full_every(4, sizes.num_layers)
    theta = fields.number("rope_theta", 500_000.0, low=1.001, high=1e15)
    if theta != 500_000.0:
        raise UnsupportedError(
            f"{fields.source}: rope_theta {theta:g} is not supported; supported: 500000"
        )
    ropes = _ropes_by_type(fields, sizes, types, full=theta, sliding=theta)
    return Layers(ropes, by_type(types, read_window(fields, 4096)))


def read_gemma3(fields: ConfigFields, sizes: Sizes) -> Layers:
    """Five layers of six have the window, and rotary embeddings of a smaller base."""
    pattern = fields.integer("sliding_window_pattern", 6, low=1, high=1 << 20)
    types = layer_types(fields, sizes.num_layers) or full_every(pattern, sizes.num_layers)
    full = fields.number("rope_theta", 1_000_000.0, low=1.001, high=1e15)
    local = fields.number("rope_local_base_freq", 10_000.0, low=1.001, high=1e15)
    return Layers(
        _ropes_by_type(fields, sizes, types, full=full, sliding=local),
        by_type(types, read_window(fields, 4096)),
        scale=fields.number("query_pre_attn_scalar", 256, low=1e-6, high=1e6) ** -0.5,
        multipliers=Multipliers(sizes.hidden_size**0.5, rounds_embedding=True),
    )


def full_every(pattern: int, num_layers: int) -> list[str]:
    """Return types of layers of which each ``pattern``-th has full attention."""
    return [SLIDING if (layer + 1) % pattern else FULL for layer in range(num_layers)]


def _ropes_by_type(
    fields: ConfigFields, sizes: Sizes, types: list[str], *, full: float, sliding: float
) -> tuple[RopeConfig | None, ...]:
    """Return each layer's rotary embedding, from ``rope_parameters``, which has an object for each
    type, or from ``rope_scaling``, which is for full attention only. ``full`` and ``sliding``: the
    bases, where config.json says nothing else."""
    given = fields.section("rope_parameters")
    if given is not None and not set(given.values) <= {FULL, SLIDING}:
        raise UnsupportedError(f"{given.source} must have settings for each type of layers")
    nothing = ConfigFields(fields.source, {})
    of_full = (given and given.section(FULL)) or fields.section("rope_scaling") or nothing
    of_sliding = (given and given.section(SLIDING)) or nothing
    if given is not None and fields.has("rope_scaling"):
        raise UnsupportedError(f"{fields.source} has both rope_parameters and rope_scaling")
    if "truncate" in of_full.values or "truncate" in of_sliding.values:
        raise UnsupportedError(f"{fields.source}: truncate is not supported here")
    positions = sizes.positions
    ropes = {
        FULL: read_scaling(fields, of_full, positions, full),
        SLIDING: read_scaling(fields, of_sliding, positions, sliding),
    }
    return tuple(ropes[kind] for kind in types)


def read_ministral(fields: ConfigFields, sizes: Sizes) -> Layers:
    """The layers that layer_types names have the window; without it all."""
    plain, window = read_mistral(fields, sizes), read_window(fields, 4096)
    types = layer_types(fields, sizes.num_layers)
    if types is None:
        return plain
    if window is None and SLIDING in types:
        raise UnsupportedError(f"{fields.source}: layers with a sliding window of unknown size")
    return replace(plain, windows=by_type(types, window))


def read_ministral3(fields: ConfigFields, sizes: Sizes) -> Layers:
    """Queries are scaled by their position."""
    scaling = fields.section("rope_parameters")
    if scaling is None:
        raise UnsupportedError(f"{fields.source} has no rope_parameters")
    rope = read_rope(fields, sizes.positions)
    return replace(
        _uniform(rope, sizes, read_window(fields, None)),
        query_scaling=QueryScaling(
            scaling.number("llama_4_scaling_beta", low=0.0, high=1e3),
            scaling.integer("original_max_position_embeddings", low=1, high=_MOST),
        ),
    )


def read_mixtral(fields: ConfigFields, sizes: Sizes) -> Layers:
    rope = read_rope(fields, sizes.positions, 1_000_000.0)
    inner = fields.integer("intermediate_size", low=1, high=MOST_SIZE)
    return replace(
        _uniform(rope, sizes, read_window(fields, None)),
        experts=read_experts(fields, sizes, (8, 2), inner=inner, renormalised=True),
    )


def read_olmoe(fields: ConfigFields, sizes: Sizes) -> Layers:
    inner = fields.integer("intermediate_size", low=1, high=MOST_SIZE)
    renormalised = fields.flag("norm_topk_prob", False)
    return replace(
        read_plain(fields, sizes),
        experts=read_experts(fields, sizes, (64, 8), inner=inner, renormalised=renormalised),
    )


def read_qwen3_moe(fields: ConfigFields, sizes: Sizes) -> Layers:
    experts = _sparse_experts(
        fields,
        sizes,
        (128, 8),
        inner=fields.integer("moe_intermediate_size", 768, low=1, high=MOST_SIZE),
        renormalised=fields.flag("norm_topk_prob", False),
    )
    return replace(read_plain(fields, sizes), experts=experts)


def read_qwen3_vl_moe(fields: ConfigFields, sizes: Sizes) -> Layers:
    inner = fields.integer("moe_intermediate_size", 1408, low=1, high=MOST_SIZE)
    if not fields.flag("norm_topk_prob", True):  # transformers ignores it, other libraries do not
        raise UnsupportedError(f"{fields.source}: norm_topk_prob false is not supported")
    if sizes.hidden_size in (inner, 2 * inner):
        raise UnsupportedError(
            f"{fields.source}: a moe_intermediate_size of {inner} is not supported with a "
            f"hidden_size of {sizes.hidden_size}: shapes do not show whether experts are stored "
            "transposed"
        )
    return replace(
        read_qwen3_vl(fields, sizes),
        experts=_sparse_experts(fields, sizes, (60, 4), inner=inner, renormalised=True),
    )


def _sparse_experts(
    fields: ConfigFields,
    sizes: Sizes,
    default: tuple[int, int],
    *,
    inner: int,
    renormalised: bool,
) -> Experts:
    """Layers have experts unless mlp_only_layers names them, or decoder_sparse_step skips them."""
    step = fields.integer("decoder_sparse_step", 1, low=1, high=1 << 20)
    dense = fields.values.get("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(isinstance(layer, int) for layer in dense):
        raise fields.error("mlp_only_layers", "a list of layers", dense)
    without = set(dense)
    layers = tuple(i not in without and (i + 1) % step == 0 for i in range(sizes.num_layers))
    experts = read_experts(fields, sizes, default, inner=inner, renormalised=renormalised)
    return replace(experts, layers=layers)


def read_experts(
    fields: ConfigFields,
    sizes: Sizes,
    default: tuple[int, int],
    *,
    inner: int,
    renormalised: bool,
) -> Experts:
    """``default``: the number of experts and of those chosen for a token."""
    count = fields.integer(
        "num_experts",
        fields.integer("num_local_experts", default[0], low=1, high=4096),
        low=1,
        high=4096,
    )
    if count * sizes.num_layers > _MOST_EXPERTS:
        raise ConfigError(
            f"{fields.source}: {count} experts in each of {sizes.num_layers} layers are not "
            f"supported; at most {_MOST_EXPERTS} in all are"
        )
    top_k = fields.integer("num_experts_per_tok", default[1], low=1, high=count)
    return Experts(count, top_k, inner, renormalised, (True,) * sizes.num_layers)
