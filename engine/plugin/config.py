"""What the engine knows of a decoder that transformers implements. Does not import transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.architecture.config import KVLayer
from engine.architecture.text_part import TextModelPart


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """One layer's attention: ``module``, its name in the model; ``number``: its place among all;
    sizes of a head in elements; ``window``: see ``KVLayer``."""

    number: int
    module: str
    num_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None

    @property
    def head_dim(self) -> int:
        """Elements of the cache for a key, or for a value: the shorter one is padded."""
        return max(self.key_dim, self.value_dim)

    @property
    def kv(self) -> KVLayer:
        return KVLayer(self.num_kv_heads, self.head_dim, self.window)


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """The counterpart of ``engine.architecture.config.ModelConfig``. ``source``: the configuration
    as transformers read it. ``max_tokens``: of the longest sequence, with frequencies that do not
    depend on its length; ``dynamic_tokens``: with those that do, if that is more."""

    architecture: str
    vocab_size: int
    hidden_size: int
    largest_matrix: int  # elements
    max_tokens: int
    dtype: str  # the checkpoint's
    eos_token_ids: frozenset[int]
    attentions: tuple[AttentionLayer, ...]
    source: Any
    mixers: tuple[str, ...] = ()  # modules that keep a state
    generates: bool = True
    dynamic_tokens: int = 0
    text_part: TextModelPart | None = None  # if the checkpoint has more than this decoder

    @property
    def kv_layers(self) -> tuple[KVLayer, ...]:
        return tuple(layer.kv for layer in self.attentions)
