"""A Llama-like model's parameters: names, shapes, and how some are read together."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.architecture.features import Experts, NormPlace, QKNorm
from engine.architecture.rotary import pair_order
from engine.weights.stored import Shape
from engine.weights.weights import WeightSource

EMBEDDING = "model.embed_tokens.weight"
NORM = "model.norm.weight"
HEAD = "lm_head.weight"
# Of what each layer reads of each token (``LayerInputs``).
INPUT_EMBEDDING = "model.embed_tokens_per_layer.weight"
INPUT_PROJECTION = "model.per_layer_model_projection.weight"
INPUT_NORM = "model.per_layer_projection_norm.weight"
# Of a layer.
LAYER_SCALE = "layer_scalar"
ROUTER_SCALE = "router.scale"
EXPERT_SCALES = "router.per_expert_scale"


class NormNames(NamedTuple):
    """What the norms of a layer are called, by what they are applied to; None: there is none."""

    attention_input: str | None
    attention_output: str | None
    feed_input: str | None
    feed_output: str | None


NORM_NAMES = {
    NormPlace.BEFORE: NormNames("input_layernorm", None, "post_attention_layernorm", None),
    NormPlace.AFTER: NormNames(
        None, "post_attention_layernorm", None, "post_feedforward_layernorm"
    ),
    NormPlace.BOTH: NormNames(
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
}


class ParallelNames(NamedTuple):
    """What norms are called in a layer that has experts in parallel with a feed-forward, by what
    they are applied to."""

    feed_output: str
    experts_input: str
    experts_output: str


PARALLEL_NAMES = ParallelNames(
    "post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2"
)


class LayerInputNames(NamedTuple):
    """What a layer's parameters are called that read its inputs (``LayerInputs``)."""

    gate: str
    projection: str
    norm: str


LAYER_INPUT_NAMES = LayerInputNames(
    "per_layer_input_gate", "per_layer_projection", "post_per_layer_input_norm"
)


def parameter_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Return the shape of every parameter, roughly in order of use, by the name that a checkpoint
    would have if all families used Llama's names (``engine.weights.families``)."""
    hidden = config.hidden_size
    shapes: dict[str, Shape] = {EMBEDDING: (config.vocab_size, hidden)}
    if (inputs := config.layer_inputs) is not None:
        width = config.num_layers * inputs.size
        shapes[INPUT_EMBEDDING] = (inputs.vocab_size, width)
        shapes[INPUT_PROJECTION] = (width, hidden)
        shapes[INPUT_NORM] = (inputs.size,)
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        for norm in _norms(config, layer):
            shapes[f"{prefix}{norm}.weight"] = (hidden,)
        shapes |= {f"{prefix}{name}": shape for name, shape in _vectors(config, layer).items()}
        for name, (rows, columns, bias) in _maps(config, layer).items():
            shapes[f"{prefix}{name}.weight"] = (rows, columns)
            if bias:
                shapes[f"{prefix}{name}.bias"] = (rows,)
    shapes[NORM] = (hidden,)
    if not config.tie_word_embeddings:
        shapes[HEAD] = (config.vocab_size, hidden)
    return shapes


def unread_names(config: ModelConfig) -> list[str]:
    """Return the names of tensors that a checkpoint may have and that are not read: the output head
    if it is the embedding, and keys and values of layers that share others'."""
    names = [HEAD] if config.tie_word_embeddings else []
    for layer in range(config.num_layers):
        if config.sizes_of(layer).keys_of is not None:
            prefix = f"model.layers.{layer}.self_attn."
            names += [f"{prefix}{part}.weight" for part in ("k_proj", "v_proj", "k_norm", "v_norm")]
    return names


def _norms(config: ModelConfig, layer: int) -> list[str]:
    """Return the names of norms of the residual stream's size."""
    names = [name for name in NORM_NAMES[config.norms] if name is not None]
    if config.has_parallel_experts(layer):
        names += PARALLEL_NAMES
    if config.layer_inputs is not None:
        names.append(LAYER_INPUT_NAMES.norm)
    return names


def _vectors(config: ModelConfig, layer: int) -> dict[str, Shape]:
    """Return the shapes of what else is not a linear map."""
    own = config.of_layer(layer)
    shapes: dict[str, Shape] = {}
    sizes = {
        QKNorm.NONE: (),
        QKNorm.HEAD: (own.head_dim, own.head_dim),
        QKNorm.WHOLE: (own.q_size, own.kv_size),
    }[config.qk_norm]
    for name, size in zip("qk", sizes, strict=False):
        if name in config.sizes_of(layer).projections:
            shapes[f"self_attn.{name}_norm.weight"] = (size,)
    if config.layer_scales:
        shapes[LAYER_SCALE] = (1,)
    if config.experts is not None and config.has_parallel_experts(layer):
        shapes[ROUTER_SCALE] = (config.hidden_size,)
        shapes[EXPERT_SCALES] = (config.experts.count,)
    return shapes


def _maps(config: ModelConfig, layer: int) -> dict[str, tuple[int, int, bool]]:
    """Return (outputs, inputs, whether there are biases) by name."""
    own, hidden = config.of_layer(layer), config.hidden_size
    outputs = {"q": own.q_size, "k": own.kv_size, "v": own.kv_size}
    maps = {
        f"self_attn.{name}_proj": (outputs[name], hidden, config.qkv_bias)
        for name in config.sizes_of(layer).projections
    }
    maps["self_attn.o_proj"] = (hidden, own.q_size, config.output_bias)
    if not config.has_experts(layer) or config.has_parallel_experts(layer):
        inner, bias = own.intermediate_size, config.mlp_bias
        maps["mlp.gate_proj"] = (inner, hidden, bias)
        maps["mlp.up_proj"] = (inner, hidden, bias)
        maps["mlp.down_proj"] = (hidden, inner, bias)
    if config.experts is not None and config.has_experts(layer):
        maps |= _expert_maps(config.experts, hidden)
    if (inputs := config.layer_inputs) is not None:
        maps[LAYER_INPUT_NAMES.gate] = (inputs.size, hidden, False)
        maps[LAYER_INPUT_NAMES.projection] = (hidden, inputs.size, False)
    return maps


def _expert_maps(experts: Experts, hidden: int) -> dict[str, tuple[int, int, bool]]:
    shapes = {"mlp.gate": (experts.count, hidden, False)}
    for number in range(experts.count):
        prefix = f"mlp.experts.{number}."
        shapes[prefix + "gate_proj"] = (experts.inner, hidden, False)
        shapes[prefix + "up_proj"] = (experts.inner, hidden, False)
        shapes[prefix + "down_proj"] = (hidden, experts.inner, False)
    if experts.has_shared:
        shapes["mlp.shared_expert.gate_proj"] = (experts.inner, hidden, False)
        shapes["mlp.shared_expert.up_proj"] = (experts.inner, hidden, False)
        shapes["mlp.shared_expert.down_proj"] = (hidden, experts.inner, False)
    return shapes


def head_order(config: ModelConfig) -> Tensor:
    """int64 [head_dim]: the order of a head's stored elements in which adjacent ones are turned
    together. ``config``: with the layer's own sizes."""
    if config.adjacent_pairs:
        return torch.arange(config.head_dim)
    return pair_order(config.head_dim, config.rotary_dim)


def fused_qkv(config: ModelConfig, source: WeightSource, layer: int, kind: str) -> Tensor:
    """Query, key and value projections' weights or biases stacked, with the elements of each
    query and key head in the order that ``engine.architecture.rope`` turns them; of a layer that
    shares others' keys and values, of queries only."""
    own = config.of_layer(layer)
    order = head_order(own)

    def ordered(rows: Tensor) -> Tensor:
        by_head = rows.view(-1, own.head_dim, *rows.shape[1:])
        return by_head.index_select(1, order.to(rows.device)).flatten(0, 1)

    stored = {
        name: source.tensor(f"{attention_prefix(layer)}{name}_proj.{kind}")
        for name in config.sizes_of(layer).projections
    }
    parts = [ordered(stored[name]) for name in "qk" if name in stored]
    if "k" in stored:
        parts.append(stored.get("v", stored["k"]))
    return torch.cat(parts)


def fused_qk_norm(config: ModelConfig, source: WeightSource, layer: int) -> Tensor:
    """[heads, head_dim]: the norm weight of each query head, and of each key head if the layer has
    keys, reordered likewise."""
    own = config.of_layer(layer)
    order = head_order(own)
    heads = {"q": own.num_heads, "k": own.num_kv_heads}
    parts = []
    for name in "qk":
        if name in config.sizes_of(layer).projections:
            weight = source.tensor(f"{attention_prefix(layer)}{name}_norm.weight")
            parts.append(weight[order.to(weight.device)].expand(heads[name], -1))
    return torch.cat(parts)


def whole_qk_norms(config: ModelConfig, source: WeightSource, layer: int) -> tuple[Tensor, Tensor]:
    """[heads * head_dim] and [kv_heads * head_dim]: the weights of norms over all heads of a token,
    reordered likewise."""
    own = config.of_layer(layer)
    order = head_order(own)

    def ordered(name: str) -> Tensor:
        weight = source.tensor(f"{attention_prefix(layer)}{name}_norm.weight")
        return weight.view(-1, own.head_dim)[:, order.to(weight.device)].flatten()

    return ordered("q"), ordered("k")


def attention_prefix(layer: int) -> str:
    """Return how the names of a layer's attention begin."""
    return f"model.layers.{layer}.self_attn."


def router_norm(config: ModelConfig, source: WeightSource, layer: int) -> Tensor:
    """[hidden]: what a normalised residual stream is multiplied by for the router of experts in
    parallel with a feed-forward."""
    scale = source.tensor(f"model.layers.{layer}.{ROUTER_SCALE}")
    return scale / math.sqrt(config.hidden_size)
