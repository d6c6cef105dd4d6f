"""GPT-2 (Radford et al. 2019): learned positions, layer norms with biases, plain feed-forward."""

from __future__ import annotations

from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.attention.cache import PagedKVCache
from engine.attention.layout import Layout, Plans, expect
from engine.attention.reference import paged_attention
from engine.model.layers import ACTIVATIONS, AnyLinear, LayerNorm, make_feed_forward, make_linear
from engine.sharding.collectives import ALONE, Collectives
from engine.sharding.layers import row_parallel, vocabulary_embedding
from engine.weights.stored import Shape
from engine.weights.weights import WeightSource

_TOKENS = "transformer.wte.weight"
_POSITIONS = "transformer.wpe.weight"
_HEAD = "lm_head.weight"


def parameter_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Return the shape of every parameter by its checkpoint name, roughly in order of use;
    projections are stored [in, out]."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, Shape] = {
        _TOKENS: (config.vocab_size, hidden),
        _POSITIONS: (config.max_position_embeddings, hidden),
    }
    projections = {
        "attn.c_attn": (hidden, 3 * hidden),
        "attn.c_proj": (hidden, hidden),
        "mlp.c_fc": (hidden, inner),
        "mlp.c_proj": (inner, hidden),
    }
    for layer in range(config.num_layers):
        prefix = f"transformer.h.{layer}."
        for norm in ("ln_1", "ln_2"):
            shapes[f"{prefix}{norm}.weight"] = (hidden,)
            shapes[f"{prefix}{norm}.bias"] = (hidden,)
        for name, (rows, columns) in projections.items():
            shapes[f"{prefix}{name}.weight"] = (rows, columns)
            shapes[f"{prefix}{name}.bias"] = (columns,)
    shapes |= {"transformer.ln_f.weight": (hidden,), "transformer.ln_f.bias": (hidden,)}
    if not config.tie_word_embeddings:
        shapes[_HEAD] = (config.vocab_size, hidden)
    return shapes


def _projection(source: WeightSource, name: str) -> AnyLinear:
    make = make_feed_forward if ".mlp." in name else make_linear
    return make(source.tensor(name + ".weight").t(), source.tensor(name + ".bias"))


def _norm(source: WeightSource, name: str, eps: float) -> LayerNorm:
    return LayerNorm(source.tensor(name + ".weight"), source.tensor(name + ".bias"), eps)


class GPT2Layer:
    """Attention and feed-forward, each on a normalised copy of the residual stream."""

    def __init__(
        self, config: ModelConfig, source: WeightSource, layer: int, collectives: Collectives
    ) -> None:
        prefix = f"transformer.h.{layer}."
        self._layer = layer
        self._num_heads = config.num_heads
        self._head_dim = config.head_dim
        self._scale = config.attention_scales[layer]
        self._attention_norm = _norm(source, prefix + "ln_1", config.norm_eps)
        self._qkv = _projection(source, prefix + "attn.c_attn")
        self._output = row_parallel(_projection(source, prefix + "attn.c_proj"), collectives)
        self._feed_norm = _norm(source, prefix + "ln_2", config.norm_eps)
        self._up = _projection(source, prefix + "mlp.c_fc")
        self._down = row_parallel(_projection(source, prefix + "mlp.c_proj"), collectives)
        self._activation = ACTIVATIONS[config.activation]

    def __call__(
        self,
        x: Tensor,
        cache: PagedKVCache,
        plans: Plans,
        rows: Tensor | None,
    ) -> Tensor:
        """[tokens, hidden] -> the same, of ``rows`` only, if given."""
        qkv = self._qkv(self._attention_norm(x)).view(x.shape[0], -1, self._head_dim)
        heads = self._num_heads
        mixed = paged_attention(
            qkv[:, :heads],
            qkv[:, heads : 2 * heads],
            qkv[:, 2 * heads :],
            cache=cache,
            layer=self._layer,
            plans=plans,
            window=None,
            scale=self._scale,
        )
        if rows is not None:
            x, mixed = x.index_select(0, rows), mixed.index_select(0, rows)
        x = self._output.add_to(x, mixed)
        return self._down.add_to(x, self._activation(self._up(self._feed_norm(x))))


class GPT2Model:
    """GPT-2 (see ``engine.model.decoder.Decoder``); of several ranks, one rank's part of it (see
    ``engine.model.llama.LlamaModel``)."""

    layout_type = Plans

    def __init__(
        self, config: ModelConfig, source: WeightSource, collectives: Collectives = ALONE
    ) -> None:
        tokens = source.tensor(_TOKENS)
        self._embed = vocabulary_embedding(tokens, config.vocab_size, collectives)
        self._positions = source.tensor(_POSITIONS)
        self._layers = [
            GPT2Layer(config, source, layer, collectives) for layer in range(config.num_layers)
        ]
        self._norm = _norm(source, "transformer.ln_f", config.norm_eps)
        self._head = make_linear(tokens if config.tie_word_embeddings else source.tensor(_HEAD))

    def hidden_states(
        self,
        token_ids: Tensor,
        positions: Tensor,
        cache: PagedKVCache,
        layout: Layout,
        rows: Tensor | None = None,
    ) -> Tensor:
        plans = expect(Plans, layout)
        x = self._embed(token_ids)
        x += self._positions.index_select(0, positions)
        for layer in self._layers:
            x = layer(x, cache, plans, rows if layer is self._layers[-1] else None)
        return self._norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._head(hidden).float()
