"""The properties of a decoder: its family, sizes and variants, read from a Hugging Face
directory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from engine.architecture.end_tokens import end_tokens
from engine.architecture.errors import ConfigError, UnsupportedError
from engine.architecture.families import DECODER_FAMILIES, DecoderFamily, TensorNames
from engine.architecture.features import (
    NO_MULTIPLIERS,
    AttentionChunk,
    AttentionWindow,
    Experts,
    ExpertStorage,
    Feature,
    LayerInputs,
    LayerSizes,
    Multipliers,
    NormPlace,
    QKNorm,
    QueryScaling,
)
from engine.architecture.fields import ConfigFields, read_object
from engine.architecture.layers import Sizes
from engine.architecture.names import ARCHITECTURES, BARE_ARCHITECTURES, ENCODERS, SUPPORTED
from engine.architecture.quantization import read_quantization
from engine.architecture.rope import RopeConfig, scaled_positions
from engine.architecture.text_part import TextModelPart, text_fields, text_part

_FAMILIES = ARCHITECTURES | BARE_ARCHITECTURES
DTYPES = ("float32", "bfloat16", "float16")

_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
_MAX_SIZE = 1 << 24


@dataclass(frozen=True, slots=True)
class KVLayer:
    """What a layer keeps in the KV cache: ``num_kv_heads`` keys and as many values of ``head_dim``
    elements for each token; a token attends to those that ``window`` says."""

    num_kv_heads: int
    head_dim: int
    window: AttentionWindow = None


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder's sizes and variants. Sizes are in elements, lengths in tokens. Where layers differ
    (``own_sizes``), those that may are each the largest of any layer; ``of_layer`` has one's own.

    ``windows[i]`` says which tokens one of layer i attends to. ``attention_scales[i]`` multiplies
    layer i's scores.
    ``ropes[i]`` are its rotary embeddings; None: it has none. What the last fields describe
    distinguishes families from Llama (``features``).
    """

    architecture: str  # as in config.json: LlamaForCausalLM
    family: str  # gpt2, or one of ``engine.architecture.families``
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    norm_eps: float
    activation: str  # silu, gelu, gelu_tanh, relu
    ropes: tuple[RopeConfig | None, ...]
    tie_word_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: QKNorm
    windows: tuple[AttentionWindow, ...]
    attention_scales: tuple[float, ...]
    dtype: str  # the checkpoint's
    generates: bool  # False: no output head, so that it can embed only
    eos_token_ids: frozenset[int]
    learned_positions: bool = False
    norms: NormPlace = NormPlace.BEFORE
    offset_norms: bool = False  # weights of norms are stored minus one
    tensor_names: TensorNames = ()  # see ``DecoderFamily``
    multipliers: Multipliers = NO_MULTIPLIERS
    query_scaling: QueryScaling | None = None
    experts: Experts | None = None
    expert_storage: ExpertStorage = ExpertStorage.APART  # on the hub; a checkpoint may differ
    text_part: TextModelPart | None = None  # if the checkpoint has more than this decoder
    own_sizes: tuple[LayerSizes, ...] = ()  # of each layer, if they differ
    layer_inputs: LayerInputs | None = None
    logit_cap: float | None = None  # a logit x becomes cap * tanh(x / cap)
    value_norm: bool = False  # of each head, without weights
    rotated_norms: bool = False  # likewise of queries and keys, where these are rotated, after it
    adjacent_pairs: bool = False  # a checkpoint's heads have what turns together side by side
    layer_scales: bool = False

    @property
    def max_tokens(self) -> int:
        """The length of the longest sequence, with scaled rotary embeddings."""
        ropes = {rope for rope in self.ropes if rope is not None}
        return scaled_positions(self.family, ropes, self.max_position_embeddings)

    @property
    def features(self) -> frozenset[Feature]:
        """What distinguishes this model from a plain Llama."""
        rotary_dims = {rope.rotary_dim(self.head_dim) for rope in self.ropes if rope}
        found = {
            Feature.LEARNED_POSITIONS: self.learned_positions,
            Feature.ROPE_BY_LAYER: len(set(self.ropes)) > 1 or None in self.ropes,
            Feature.PARTIAL_ROPE: rotary_dims - {self.head_dim},
            Feature.QUERY_SCALING: self.query_scaling,
            Feature.NORMS_AFTER: self.norms is not NormPlace.BEFORE,
            Feature.OFFSET_NORMS: self.offset_norms,
            Feature.WHOLE_QK_NORM: self.qk_norm is QKNorm.WHOLE,
            Feature.TENSOR_NAMES: self.tensor_names,
            Feature.MULTIPLIERS: self.multipliers != NO_MULTIPLIERS,
            Feature.EXPERTS: self.experts,
            Feature.SIZES_BY_LAYER: self.own_sizes,
            Feature.SHARED_KEYS: any(each.keys_of is not None for each in self.own_sizes),
            Feature.VALUE_NORM: self.value_norm,
            Feature.LAYER_INPUTS: self.layer_inputs,
            Feature.LAYER_SCALES: self.layer_scales,
            Feature.LOGIT_CAP: self.logit_cap,
            Feature.PARALLEL_EXPERTS: self.experts and self.experts.is_parallel,
            Feature.CHUNKED_ATTENTION: any(isinstance(w, AttentionChunk) for w in self.windows),
            Feature.ROTATED_NORMS: self.rotated_norms,
            Feature.UNROTATED_SCALING: self.query_scaling and self.query_scaling.is_unrotated,
            Feature.SCALED_INPUTS: self.experts and self.experts.scales_inputs,
            Feature.SHARED_EXPERT: self.experts and self.experts.has_shared,
        }
        return frozenset(feature for feature, has in found.items() if has)

    def sizes_of(self, layer: int) -> LayerSizes:
        if self.own_sizes:
            return self.own_sizes[layer]
        return LayerSizes(self.num_kv_heads, self.head_dim, self.intermediate_size)

    def of_layer(self, layer: int) -> ModelConfig:
        """Return a config that has the layer's own sizes."""
        if not self.own_sizes:
            return self
        own = self.own_sizes[layer]
        return replace(
            self,
            num_kv_heads=own.num_kv_heads,
            head_dim=own.head_dim,
            intermediate_size=own.intermediate_size,
        )

    @property
    def rotary_dim(self) -> int:
        """How many elements of a head turn, in every layer that turns any."""
        dims = (rope.rotary_dim(self.head_dim) for rope in self.ropes if rope)
        return next(dims, self.head_dim)

    def has_experts(self, layer: int) -> bool:
        return self.experts is not None and self.experts.layers[layer]

    def has_parallel_experts(self, layer: int) -> bool:
        return self.experts is not None and self.experts.is_parallel and self.experts.layers[layer]

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    @property
    def kv_layers(self) -> tuple[KVLayer, ...]:
        """Those of the layers that do not share others' keys and values."""
        sizes = map(self.sizes_of, range(self.num_layers))
        return tuple(
            KVLayer(own.num_kv_heads, own.head_dim, window)
            for own, window in zip(sizes, self.windows, strict=True)
            if own.keys_of is None
        )

    @property
    def kv_numbers(self) -> tuple[int, ...]:
        """For each layer, the number among ``kv_layers`` of the one that it attends to."""
        with_keys = [i for i in range(self.num_layers) if self.sizes_of(i).keys_of is None]
        sources = [self.sizes_of(i).keys_of for i in range(self.num_layers)]
        return tuple(
            with_keys.index(i if source is None else source) for i, source in enumerate(sources)
        )

    @property
    def largest_matrix(self) -> int:
        """Elements of a layer's largest matrix."""
        return self.hidden_size * self.intermediate_size


def load_model_config(directory: str | Path) -> ModelConfig:
    """Load the configuration from ``directory``/config.json (and generation_config.json, if any).

    Raises ConfigError when the directory or a field is unusable, and UnsupportedError when only
    this implementation does not serve what config.json describes.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise ConfigError(f"{directory} is not a directory; --model needs a model directory")
    fields = read_object(directory / "config.json")
    _refuse_bidirectional(fields)
    found = text_part(fields)
    if found is not None:
        return _read_text_part(directory, fields, *found)
    architecture = _architecture(fields)
    family = _FAMILIES[architecture]
    if (kind := fields.text("model_type", family)) != family:  # what transformers goes by
        raise UnsupportedError(
            f"{fields.source}: {architecture} with the model_type {kind} is not supported"
        )
    read_quantization(directory)  # refuses what the weights' readers do not know
    eos = end_tokens(directory)
    if family == "gpt2":
        return _read_gpt2(fields, architecture, eos)
    DECODER_FAMILIES[family].refuse_unknown(fields)
    return _read_llama_like(fields, architecture, family, eos)


def _read_text_part(
    directory: Path, fields: ConfigFields, architecture: str, part: TextModelPart
) -> ModelConfig:
    text = text_fields(fields, part)
    _refuse_bidirectional(text)
    family = text.text("model_type")
    if family not in DECODER_FAMILIES:
        raise UnsupportedError(
            f"{text.source}: the text model {family} of {architecture} is not supported"
        )
    read_quantization(directory)
    DECODER_FAMILIES[family].refuse_unknown(text, strictly=True)
    eos = end_tokens(directory)
    return replace(_read_llama_like(text, architecture, family, eos), text_part=part)


def _refuse_bidirectional(fields: ConfigFields) -> None:
    """Some decoders were trained further, as embedding models, to attend to later tokens too, and
    transformers computes them so."""
    if not fields.flag("is_causal", True):
        raise ConfigError(
            f"{fields.source}: is_causal is false: tokens attend to later ones, which is supported "
            f"only for encoders ({', '.join(ENCODERS)})"
        )


def _architecture(fields: ConfigFields) -> str:
    names = fields.strings("architectures")
    if not names:
        raise ConfigError(f"{fields.source} names no architectures; supported: {SUPPORTED}")
    for name in names:
        if name in _FAMILIES:
            return name
    raise UnsupportedError(
        f"{fields.source}: {', '.join(names)} is not supported; supported: {SUPPORTED}"
    )


def read_dtype(fields: ConfigFields) -> str:
    """Return the checkpoint's own dtype, one of DTYPES."""
    name = fields.text("dtype", fields.text("torch_dtype", "float32")).removeprefix("torch.")
    if name not in DTYPES:
        raise fields.error("dtype", "one of " + ", ".join(DTYPES), name)
    return name


def read_activation(fields: ConfigFields, name: str, default: str) -> str:
    """Return its name among ``engine.model.layers.ACTIVATIONS``."""
    activation = fields.text(name, default)
    if activation not in _ACTIVATIONS:
        raise UnsupportedError(
            str(fields.error(name, "one of " + ", ".join(_ACTIVATIONS), activation))
        )
    return _ACTIVATIONS[activation]


def _head_dim(fields: ConfigFields, hidden_size: int, num_heads: int, default: int | None) -> int:
    if fields.has("head_dim") or default is not None:
        return fields.integer("head_dim", default, low=2, high=1024)
    if hidden_size % num_heads:
        raise ConfigError(
            f"{fields.source}: hidden_size {hidden_size} is not a multiple of its {num_heads} heads"
        )
    return hidden_size // num_heads


def _read_llama_like(
    fields: ConfigFields, architecture: str, name: str, eos: frozenset[int]
) -> ModelConfig:
    """``name``: of the family."""
    is_bare = architecture in BARE_ARCHITECTURES
    family = DECODER_FAMILIES[name]
    sizes = _read_sizes(fields, family)
    layers = family.read(fields, sizes)
    inner = layers.inner or fields.integer("intermediate_size", low=1, high=_MAX_SIZE)
    # Llama's one switch covers all four projections; Qwen2 has no choice.
    biased = family.attention_bias and fields.flag("attention_bias", False)
    return ModelConfig(
        architecture=architecture,
        family=name,
        vocab_size=fields.integer("vocab_size", family.vocab_size, low=1, high=_MAX_SIZE),
        hidden_size=sizes.hidden_size,
        intermediate_size=max((own.intermediate_size for own in layers.sizes), default=inner),
        num_layers=sizes.num_layers,
        num_heads=sizes.num_heads,
        num_kv_heads=max((own.num_kv_heads for own in layers.sizes), default=sizes.num_kv_heads),
        head_dim=max((own.head_dim for own in layers.sizes), default=sizes.head_dim),
        max_position_embeddings=sizes.positions,
        norm_eps=fields.number("rms_norm_eps", family.norm_eps, low=0.0, high=1.0),
        activation=read_activation(fields, family.activation_field, family.activation),
        ropes=layers.ropes,
        tie_word_embeddings=is_bare or fields.flag("tie_word_embeddings", family.is_tied),
        qkv_bias=family.qkv_bias or biased,
        output_bias=biased,
        mlp_bias=family.mlp_bias and fields.flag("mlp_bias", False),
        qk_norm=family.qk_norm,
        windows=layers.windows,
        attention_scales=(layers.scale or sizes.head_dim**-0.5,) * sizes.num_layers,
        dtype=read_dtype(fields),
        generates=not is_bare,
        eos_token_ids=eos,
        norms=family.norms,
        offset_norms=family.offset_norms,
        tensor_names=family.tensor_names,
        multipliers=layers.multipliers,
        query_scaling=layers.query_scaling,
        experts=layers.experts,
        expert_storage=family.expert_storage,
        own_sizes=layers.sizes,
        layer_inputs=layers.inputs,
        logit_cap=layers.logit_cap,
        value_norm=family.value_norm,
        layer_scales=family.layer_scales,
        rotated_norms=layers.rotated_norms,
        adjacent_pairs=family.adjacent_pairs,
    )


def _read_sizes(fields: ConfigFields, family: DecoderFamily) -> Sizes:
    hidden_size = fields.integer("hidden_size", low=1, high=_MAX_SIZE)
    num_layers = fields.integer("num_hidden_layers", low=1, high=4096)
    num_heads = fields.integer("num_attention_heads", family.num_heads, low=1, high=4096)
    num_kv_heads = fields.integer(
        "num_key_value_heads", min(family.num_kv_heads or num_heads, num_heads), low=1, high=4096
    )
    if num_heads % num_kv_heads:
        raise ConfigError(
            f"{fields.source}: num_attention_heads {num_heads} is not a multiple of "
            f"num_key_value_heads {num_kv_heads}"
        )
    head_dim = _head_dim(fields, hidden_size, num_heads, family.head_dim)
    if head_dim % 2:
        raise fields.error("head_dim", "even, as rotary embeddings turn pairs", head_dim)
    positions = fields.integer(
        "max_position_embeddings", family.max_position_embeddings, low=1, high=1 << 30
    )
    return Sizes(num_layers, hidden_size, num_heads, num_kv_heads, head_dim, positions)


def _read_gpt2(fields: ConfigFields, architecture: str, eos: frozenset[int]) -> ModelConfig:
    is_bare = architecture in BARE_ARCHITECTURES
    hidden_size = fields.integer("n_embd", 768, low=1, high=_MAX_SIZE)
    num_layers = fields.integer("n_layer", 12, low=1, high=4096)
    num_heads = fields.integer("n_head", 12, low=1, high=4096)
    head_dim = _head_dim(fields, hidden_size, num_heads, None)
    if fields.flag("add_cross_attention", False):
        raise ConfigError(f"{fields.source}: add_cross_attention is not supported")
    scale = 1 / math.sqrt(head_dim) if fields.flag("scale_attn_weights", True) else 1.0
    by_depth = fields.flag("scale_attn_by_inverse_layer_idx", False)
    return ModelConfig(
        architecture=architecture,
        family="gpt2",
        vocab_size=fields.integer("vocab_size", 50257, low=1, high=_MAX_SIZE),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("n_inner", 4 * hidden_size, low=1, high=_MAX_SIZE),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=head_dim,
        max_position_embeddings=fields.integer("n_positions", 1024, low=1, high=1 << 24),
        norm_eps=fields.number("layer_norm_epsilon", 1e-5, low=0.0, high=1.0),
        activation=read_activation(fields, "activation_function", "gelu_new"),
        ropes=(None,) * num_layers,
        tie_word_embeddings=is_bare or fields.flag("tie_word_embeddings", True),
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        qk_norm=QKNorm.NONE,
        windows=(None,) * num_layers,
        attention_scales=tuple(
            scale / (layer + 1) if by_depth else scale for layer in range(num_layers)
        ),
        dtype=read_dtype(fields),
        generates=not is_bare,
        eos_token_ids=eos,
        learned_positions=True,
    )
