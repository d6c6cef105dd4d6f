"""What distinguishes a decoder from a plain Llama.

A model's configuration says which of these it has (``ModelConfig.features``), and each code path
says which it serves. A model with others is computed by another path.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, StrEnum


class Feature(StrEnum):
    """Each value completes "a model with ..."."""

    LEARNED_POSITIONS = "learned positions"
    ROPE_BY_LAYER = "rotary embeddings that differ by layer"  # some layers may have none
    PARTIAL_ROPE = "rotary embeddings of a part of each head"
    QUERY_SCALING = "queries scaled by their position"
    NORMS_AFTER = "norms after attention and feed-forward"
    OFFSET_NORMS = "norms whose weights are stored minus one"
    WHOLE_QK_NORM = "norms of all queries, or keys, of a token at once"
    TENSOR_NAMES = "tensors stored under other names, or several as one"
    MULTIPLIERS = "multipliers of embeddings, residuals or logits"
    EXPERTS = "mixtures of experts"
    SIZES_BY_LAYER = "heads or feed-forwards whose sizes differ by layer"
    SHARED_KEYS = "layers that attend to the keys and values of others"
    VALUE_NORM = "norms of values"
    LAYER_INPUTS = "an embedding of each token for each layer"
    LAYER_SCALES = "layers whose results are multiplied by a stored number"
    LOGIT_CAP = "a cap on logits"
    PARALLEL_EXPERTS = "mixtures of experts in parallel with a feed-forward"
    CHUNKED_ATTENTION = "attention within chunks of a sequence"
    ROTATED_NORMS = "norms of queries and keys after these are rotated"
    UNROTATED_SCALING = "queries scaled only in layers without rotary embeddings"
    SCALED_INPUTS = "mixtures that scale what experts read"
    SHARED_EXPERT = "a shared expert that every token uses"


@dataclass(frozen=True, slots=True)
class AttentionChunk:
    """A sequence is divided into chunks of ``size`` tokens from its beginning on, and a token
    attends to those of the same chunk up to itself."""

    size: int


AttentionWindow = int | AttentionChunk | None
"""Which tokens one attends to: at most so many, itself included; those of its chunk; or all up to
itself."""


def sliding(window: AttentionWindow) -> int | None:
    """Return ``window`` where it cannot be a chunk: for code that a model with chunks does not
    reach."""
    if isinstance(window, AttentionChunk):
        raise ValueError(f"attention within chunks of {window.size} tokens is not computed here")
    return window


class NormPlace(Enum):
    """Where a layer normalises: what attention and feed-forward read, what they add to the residual
    stream, or both."""

    BEFORE = "before"
    AFTER = "after"
    BOTH = "both"


class QKNorm(Enum):
    """What is normalised before it is rotated: nothing; each head; all heads of a token at once."""

    NONE = "none"
    HEAD = "head"
    WHOLE = "whole"


class ExpertStorage(Enum):
    """How a checkpoint stores a layer's experts: each matrix by itself; or gate and up side by side
    as one tensor of all experts, and down as another, [experts, outputs, inputs] or transposed."""

    APART = "apart"
    ROWS = "rows"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class Multipliers:
    """``residual``: of what each half of a layer adds; ``logits`` are divided by it.
    ``rounds_embedding``: to the embeddings' dtype, as in training."""

    embedding: float = 1.0
    residual: float = 1.0
    logits: float = 1.0
    rounds_embedding: bool = False


NO_MULTIPLIERS = Multipliers()


@dataclass(frozen=True, slots=True)
class QueryScaling:
    """A query at position p is multiplied by the factor of step floor((p + offset) / positions).
    ``is_unrotated``: only in layers without rotary embeddings, and in float32; else the factor is
    first rounded to the query's dtype."""

    beta: float
    positions: int
    offset: int = 0
    is_unrotated: bool = False

    def factor(self, step: int) -> float:
        return 1 + self.beta * math.log(1 + step)


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture: ``top_k`` of ``count`` feed-forwards of ``inner`` elements are chosen for each
    token, by a softmax of the router's scores. ``renormalised``: the chosen ones' weights sum to
    one. ``layers[i]``: whether layer i has experts. ``is_parallel``: in parallel with
    a feed-forward, not in its place; each has separate norms, and the router reads the residual
    stream. ``scales_inputs``: a weight is the sigmoid of a score, and multiplies what the expert
    reads, not its result. ``has_shared``: each token also has one more expert, with a weight of
    one."""

    count: int
    top_k: int
    inner: int
    renormalised: bool
    layers: tuple[bool, ...]
    is_parallel: bool = False
    scales_inputs: bool = False
    has_shared: bool = False


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """Those of one layer, of a model whose layers differ. ``keys_of``: the layer whose keys and
    values it attends to, if it has none. ``value_is_key``: its values are its keys, before these
    are normalised and rotated."""

    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    keys_of: int | None = None
    value_is_key: bool = False

    @property
    def projections(self) -> str:
        """The first letters of those that attention reads: query, key, value."""
        if self.keys_of is not None:
            return "q"
        return "qk" if self.value_is_key else "qkv"


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """Each layer also reads ``size`` elements for each token, which are only for this layer, from a
    second embedding of ``vocab_size`` tokens."""

    size: int
    vocab_size: int
