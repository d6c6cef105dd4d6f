"""BERT and RoBERTa: bidirectional encoders, whole texts in, one state per token out.

Sources: arXiv 1810.04805 (BERT), 1907.11692 (RoBERTa), 1911.02116 (XLM-R). The rows of a batch's
texts are concatenated without padding; only attention pads, among texts of similar length.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional

from engine.architecture.encoder_config import EncoderConfig
from engine.model.layers import ACTIVATIONS, AnyLinear, LayerNorm, make_linear
from engine.weights.stored import Shape
from engine.weights.weights import WeightSource

# Texts share one padded attention while the shortest has at least this share of the longest.
_FILLED = 0.75


def prefix_of(config: EncoderConfig) -> str:
    return f"{config.family}."


def parameter_shapes(config: EncoderConfig) -> dict[str, Shape]:
    """Return the shape of every parameter by its checkpoint name, roughly in order of use."""
    hidden, inner, prefix = config.hidden_size, config.intermediate_size, prefix_of(config)
    shapes: dict[str, Shape] = {
        f"{prefix}embeddings.word_embeddings.weight": (config.vocab_size, hidden),
        f"{prefix}embeddings.position_embeddings.weight": (config.num_positions, hidden),
        f"{prefix}embeddings.token_type_embeddings.weight": (config.num_token_types, hidden),
    }
    maps = {
        "attention.self.query": (hidden, hidden),
        "attention.self.key": (hidden, hidden),
        "attention.self.value": (hidden, hidden),
        "attention.output.dense": (hidden, hidden),
        "intermediate.dense": (inner, hidden),
        "output.dense": (hidden, inner),
    }

    def add_norm(name: str) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (hidden,)

    add_norm(f"{prefix}embeddings.LayerNorm")
    for layer in range(config.num_layers):
        name = f"{prefix}encoder.layer.{layer}."
        for part, (rows, columns) in maps.items():
            shapes[f"{name}{part}.weight"] = (rows, columns)
            shapes[f"{name}{part}.bias"] = (rows,)
        add_norm(f"{name}attention.output.LayerNorm")
        add_norm(f"{name}output.LayerNorm")
    if config.num_scores:
        inside, outside = _head_names(config)
        shapes |= {f"{inside}.weight": (hidden, hidden), f"{inside}.bias": (hidden,)}
        shapes[f"{outside}.weight"] = (config.num_scores, hidden)
        shapes[f"{outside}.bias"] = (config.num_scores,)
    return shapes


def unused_names(config: EncoderConfig) -> list[str]:
    """Return the checkpoint's unused tensors: a head over the first token that embeddings do not
    need."""
    pooler = f"{prefix_of(config)}pooler.dense"
    uses_it = config.num_scores and config.family == "bert"
    return [] if uses_it else [f"{pooler}.weight", f"{pooler}.bias"]


def _head_names(config: EncoderConfig) -> tuple[str, str]:
    if config.family == "bert":
        return "bert.pooler.dense", "classifier"
    return "classifier.dense", "classifier.out_proj"


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Texts of similar length, adjacent in the batch: ``count`` of at most ``width`` tokens, whose
    rows are [first, last). Without padding the last three are None; else ``padded`` holds the row
    of each place [count * width], ``mask`` [count, 1, 1, width] marks the places of tokens, and
    ``filled`` holds their numbers."""

    first: int
    last: int
    count: int
    width: int
    padded: Tensor | None = None
    mask: Tensor | None = None
    filled: Tensor | None = None


@dataclass(frozen=True, slots=True)
class EncoderBatch:
    """``lengths``: tokens of each text, longest first; tensors are int64 [all tokens]."""

    lengths: list[int]
    token_ids: Tensor
    token_types: Tensor


class BertLayer:
    """Attention and feed-forward, each added to its input and then normalised."""

    def __init__(self, config: EncoderConfig, source: WeightSource, layer: int) -> None:
        name = f"{prefix_of(config)}encoder.layer.{layer}."
        parts = [f"{name}attention.self.{part}" for part in ("query", "key", "value")]
        self._heads = config.num_heads
        self._qkv = make_linear(
            torch.cat([source.tensor(f"{part}.weight") for part in parts]),
            torch.cat([source.tensor(f"{part}.bias") for part in parts]),
        )
        self._output = _linear(source, f"{name}attention.output.dense")
        self._attention_norm = _norm(source, f"{name}attention.output.LayerNorm", config)
        self._up = _linear(source, f"{name}intermediate.dense")
        self._down = _linear(source, f"{name}output.dense")
        self._norm = _norm(source, f"{name}output.LayerNorm", config)
        self._activation = ACTIVATIONS[config.activation]

    def __call__(self, x: Tensor, buckets: list[_Bucket]) -> Tensor:
        """[tokens, hidden] -> the same."""
        mixed = self._attend(self._qkv(x), buckets)
        x = self._attention_norm(self._output.add_to(x, mixed))
        inner = self._activation(self._up(x))
        return self._norm(self._down.add_to(x, inner))

    def _attend(self, qkv: Tensor, buckets: list[_Bucket]) -> Tensor:
        """[tokens, 3 * hidden] -> [tokens, hidden]."""
        mixed = []
        for bucket in buckets:
            rows = qkv[bucket.first : bucket.last]
            if bucket.padded is not None:
                rows = rows.index_select(0, bucket.padded)
            # [3, count, heads, width, head_dim]
            parts = rows.view(bucket.count, bucket.width, 3, self._heads, -1).permute(2, 0, 3, 1, 4)
            out = functional.scaled_dot_product_attention(
                parts[0], parts[1], parts[2], attn_mask=bucket.mask
            )
            out = out.transpose(1, 2).reshape(bucket.count * bucket.width, -1)
            if bucket.filled is not None:
                out = out.index_select(0, bucket.filled)
            mixed.append(out)
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


class BertEncoder:
    """An encoder, with a classifier's head if the checkpoint has one."""

    def __init__(self, config: EncoderConfig, source: WeightSource) -> None:
        table = f"{prefix_of(config)}embeddings."
        self._words = source.tensor(f"{table}word_embeddings.weight")
        self._positions = source.tensor(f"{table}position_embeddings.weight")
        self._types = source.tensor(f"{table}token_type_embeddings.weight")
        self._norm = _norm(source, f"{table}LayerNorm", config)
        self._layers = [BertLayer(config, source, layer) for layer in range(config.num_layers)]
        self._padding_id = config.padding_id
        self._head: tuple[AnyLinear, AnyLinear] | None = None
        if config.num_scores:
            inside, outside = _head_names(config)
            self._head = _linear(source, inside), _linear(source, outside)

    def hidden_states(self, batch: EncoderBatch) -> Tensor:
        """[tokens, hidden]: the last layer's state of each token."""
        device = self._words.device
        if self._padding_id is None:
            positions = torch.cat([torch.arange(length) for length in batch.lengths]).to(device)
        else:
            positions = _positions_without(self._padding_id, batch)
        x = self._words.index_select(0, batch.token_ids)
        x += self._positions.index_select(0, positions)
        x += self._types.index_select(0, batch.token_types)
        x = self._norm(x)
        buckets = _buckets(batch.lengths, device)
        for layer in self._layers:
            x = layer(x, buckets)
        return x

    def scores(self, first_states: Tensor) -> Tensor:
        """[texts, scores] of the texts' first tokens' states [texts, hidden]."""
        if self._head is None:
            raise ValueError("this encoder is not a classifier")
        inside, outside = self._head
        return outside(torch.tanh(inside(first_states)))


def _positions_without(padding_id: int, batch: EncoderBatch) -> Tensor:
    """Number each text's tokens [all tokens] from ``padding_id`` + 1, but for that token."""
    counts = (batch.token_ids != padding_id).long()
    numbers = counts.cumsum(0)
    lengths = torch.tensor(batch.lengths)
    before = (numbers - counts).index_select(0, (lengths.cumsum(0) - lengths).to(counts.device))
    before = before.repeat_interleave(lengths.to(counts.device), output_size=len(counts))
    return (numbers - before) * counts + padding_id


def _linear(source: WeightSource, name: str) -> AnyLinear:
    return make_linear(source.tensor(f"{name}.weight"), source.tensor(f"{name}.bias"))


def _norm(source: WeightSource, name: str, config: EncoderConfig) -> LayerNorm:
    return LayerNorm(
        source.tensor(f"{name}.weight"), source.tensor(f"{name}.bias"), config.norm_eps
    )


def _buckets(lengths: list[int], device: torch.device) -> list[_Bucket]:
    """``lengths``: longest first."""
    firsts = [0, *accumulate(lengths)]
    buckets = []
    begin = 0
    for end in range(1, len(lengths) + 1):
        if end == len(lengths) or lengths[end] < lengths[begin] * _FILLED:
            buckets.append(_bucket(lengths[begin:end], firsts[begin], device))
            begin = end
    return buckets


def _bucket(lengths: list[int], first: int, device: torch.device) -> _Bucket:
    count, width, tokens = len(lengths), lengths[0], sum(lengths)
    if tokens == count * width:
        return _Bucket(first, first + tokens, count, width)
    sizes = torch.tensor(lengths)
    places = torch.arange(width)
    is_token = places < sizes[:, None]
    begins = (sizes.cumsum(0) - sizes)[:, None]
    padded = begins + torch.minimum(places, sizes[:, None] - 1)
    return _Bucket(
        first,
        first + tokens,
        count,
        width,
        padded=padded.flatten().to(device),
        mask=is_token[:, None, None, :].to(device),
        filled=is_token.flatten().nonzero().flatten().to(device),
    )
