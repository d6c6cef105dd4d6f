"""Which part of each parameter a rank holds. Pure functions, no tensor.

The division is Megatron-LM's (arXiv 1909.08053): the projections into attention and feed-forward
are divided by their outputs (whole heads; inner elements), the projections out of them by their
inputs, so that each half of a layer needs one sum over the ranks. Embedding and output head are
divided by the vocabulary. Of a mixture each expert is divided as a feed-forward is, so all ranks
compute the same experts. Norms, routers and learned positions are held by every rank.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.architecture.config import ModelConfig
from engine.architecture.errors import ConfigError
from engine.architecture.features import Feature

Range = tuple[int, int]  # first element, and the one after the last

# What ranks divide besides a plain Llama.
SERVED_BY_RANKS = frozenset(
    {
        Feature.LEARNED_POSITIONS,
        Feature.ROPE_BY_LAYER,
        Feature.QUERY_SCALING,
        Feature.EXPERTS,
    }
)


@dataclass(frozen=True, slots=True)
class Part:
    """Elements ``ranges`` of dimension ``dim``, concatenated."""

    dim: int
    ranges: tuple[Range, ...]


class Share(enum.Enum):
    """What a rank holds of a parameter that is not divided."""

    WHOLE = "whole"
    ZEROS = "zeros"  # a bias of a sum over the ranks, which the first rank adds


@dataclass(frozen=True, slots=True)
class Shard:
    """Rank ``rank`` of ``size``."""

    rank: int
    size: int

    def config(self, config: ModelConfig) -> ModelConfig:
        """Return the model's config as this rank computes it: its heads and its inner elements. Key
        heads are repeated if there are fewer than ranks. Raises ConfigError when the sizes do not
        divide."""
        if self.size == 1:
            return config
        if others := sorted(config.features - SERVED_BY_RANKS):
            raise ConfigError(
                f"--tensor-parallel-size {self.size} does not support a model with "
                f"{' and '.join(others)}"
            )
        heads, kv_heads = config.num_heads, config.num_kv_heads
        self._require(heads % self.size == 0, f"its {heads} attention heads")
        self._require(
            kv_heads % self.size == 0 or self.size % kv_heads == 0, f"its {kv_heads} key heads"
        )
        inner = config.intermediate_size
        self._require(inner % self.size == 0, f"its {inner} inner elements of a feed-forward")
        experts = config.experts
        if experts is not None:
            self._require(
                experts.inner % self.size == 0, f"its {experts.inner} elements of an expert"
            )
            experts = replace(experts, inner=experts.inner // self.size)
        last, end = Shard(self.size - 1, self.size).vocabulary(config.vocab_size)
        self._require(last < end, f"its vocabulary of {config.vocab_size}")
        return replace(
            config,
            num_heads=heads // self.size,
            num_kv_heads=max(1, kv_heads // self.size),
            intermediate_size=inner // self.size,
            experts=experts,
        )

    def even(self, count: int) -> Range:
        """Return this rank's range of ``count`` elements, divided evenly."""
        each = count // self.size
        return self.rank * each, (self.rank + 1) * each

    def query(self, config: ModelConfig) -> Range:
        """Return the range of query elements of all heads, for the undivided model's ``config``."""
        return self.even(config.q_size)

    def key(self, config: ModelConfig) -> Range:
        """Return the range of key (or value) elements of all key heads, likewise."""
        if config.num_kv_heads >= self.size:
            return self.even(config.kv_size)
        head = self.rank * config.num_kv_heads // self.size
        return head * config.head_dim, (head + 1) * config.head_dim

    def vocabulary(self, vocab_size: int) -> Range:
        """Return the range of token ids: equally many for each rank but the last ones, which may
        have fewer."""
        each = vocabulary_width(vocab_size, self.size)
        return min(self.rank * each, vocab_size), min((self.rank + 1) * each, vocab_size)

    def _require(self, divides: bool, what: str) -> None:
        if not divides:
            raise ConfigError(
                f"--tensor-parallel-size {self.size} does not divide this model: {what} cannot be "
                "shared evenly"
            )


def vocabulary_width(vocab_size: int, size: int) -> int:
    """Return the number of token ids of each of ``size`` ranks but the last ones."""
    return -(-vocab_size // size)


def part_of(name: str, config: ModelConfig, shard: Shard) -> Part | Share:
    """Return what ``shard`` holds of the parameter with this checkpoint name, in a model with the
    (undivided) ``config``. Raises KeyError for an unknown name."""
    rules = _GPT2 if config.family == "gpt2" else _LLAMA
    for pattern, rule in rules:
        if pattern.fullmatch(name):
            return _apply(rule, config, shard)
    raise KeyError(f"no rule says how {name} is divided among ranks")


def parts_of(names: Iterable[str], config: ModelConfig, shard: Shard) -> dict[str, Part]:
    """Return what ``shard`` holds of the divided parameters; see ``part_of``."""
    held = {name: part_of(name, config, shard) for name in names}
    return {name: part for name, part in held.items() if isinstance(part, Part)}


class _Rule(enum.Enum):
    """How a parameter is divided: what, and along which dimension."""

    WHOLE = enum.auto()
    FIRST = enum.auto()  # a bias of a sum
    VOCABULARY = enum.auto()
    QUERY_0 = enum.auto()
    QUERY_1 = enum.auto()
    KEY_0 = enum.auto()
    INNER_0 = enum.auto()
    INNER_1 = enum.auto()
    EXPERT_0 = enum.auto()
    EXPERT_1 = enum.auto()
    FUSED_0 = enum.auto()  # GPT-2's queries, keys and values side by side
    FUSED_1 = enum.auto()


def _apply(rule: _Rule, config: ModelConfig, shard: Shard) -> Part | Share:
    match rule:
        case _Rule.WHOLE:
            return Share.WHOLE
        case _Rule.FIRST:
            return Share.WHOLE if shard.rank == 0 else Share.ZEROS
        case _Rule.VOCABULARY:
            return Part(0, (shard.vocabulary(config.vocab_size),))
        case _Rule.QUERY_0 | _Rule.QUERY_1:
            return Part(int(rule is _Rule.QUERY_1), (shard.query(config),))
        case _Rule.KEY_0:
            return Part(0, (shard.key(config),))
        case _Rule.INNER_0 | _Rule.INNER_1:
            return Part(int(rule is _Rule.INNER_1), (shard.even(config.intermediate_size),))
        case _Rule.EXPERT_0 | _Rule.EXPERT_1:
            inner = 0 if config.experts is None else config.experts.inner
            return Part(int(rule is _Rule.EXPERT_1), (shard.even(inner),))
        case _Rule.FUSED_0 | _Rule.FUSED_1:
            query, key = shard.query(config), shard.key(config)
            value_begins = config.q_size + config.kv_size
            ranges = (query, _moved(key, config.q_size), _moved(key, value_begins))
            return Part(int(rule is _Rule.FUSED_1), ranges)


def _moved(span: Range, by: int) -> Range:
    return span[0] + by, span[1] + by


def _rules(table: dict[str, _Rule]) -> tuple[tuple[re.Pattern[str], _Rule], ...]:
    return tuple((re.compile(pattern), rule) for pattern, rule in table.items())


# Weights are [out, in].
_LLAMA = _rules(
    {
        r"model\.embed_tokens\.weight|lm_head\.weight": _Rule.VOCABULARY,
        r"model\.norm\.weight": _Rule.WHOLE,
        r".*\.(input|post_attention)_layernorm\.weight": _Rule.WHOLE,
        r".*\.self_attn\.[qk]_norm\.weight": _Rule.WHOLE,
        r".*\.self_attn\.q_proj\.(weight|bias)": _Rule.QUERY_0,
        r".*\.self_attn\.[kv]_proj\.(weight|bias)": _Rule.KEY_0,
        r".*\.self_attn\.o_proj\.weight": _Rule.QUERY_1,
        r".*\.mlp\.(gate|up)_proj\.(weight|bias)": _Rule.INNER_0,
        r".*\.mlp\.down_proj\.weight": _Rule.INNER_1,
        r".*\.(o|down)_proj\.bias": _Rule.FIRST,
        r".*\.mlp\.gate\.weight": _Rule.WHOLE,
        r".*\.mlp\.experts\.\d+\.(gate|up)_proj\.weight": _Rule.EXPERT_0,
        r".*\.mlp\.experts\.\d+\.down_proj\.weight": _Rule.EXPERT_1,
    }
)
# Weights of projections are [in, out].
_GPT2 = _rules(
    {
        r"transformer\.wte\.weight|lm_head\.weight": _Rule.VOCABULARY,
        r"transformer\.wpe\.weight": _Rule.WHOLE,
        r".*\.ln_[12f]\.(weight|bias)": _Rule.WHOLE,
        r".*\.attn\.c_attn\.weight": _Rule.FUSED_1,
        r".*\.attn\.c_attn\.bias": _Rule.FUSED_0,
        r".*\.attn\.c_proj\.weight": _Rule.QUERY_0,
        r".*\.mlp\.c_fc\.weight": _Rule.INNER_1,
        r".*\.mlp\.c_fc\.bias": _Rule.INNER_0,
        r".*\.mlp\.c_proj\.weight": _Rule.INNER_0,
        r".*\.c_proj\.bias": _Rule.FIRST,
    }
)
