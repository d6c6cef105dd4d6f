"""The ranks' parts put together are the model, each element once, and each rank can do its part."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.architecture.config import ModelConfig, load_model_config
from engine.architecture.errors import ConfigError
from engine.run.loader import parameter_shapes
from engine.sharding.shard import Shard, Share, part_of
from engine.weights.sharded import ShardedWeights
from tests.engine.tiny_models import VARIANTS, Variant, save_model

REPEATED_KEYS = ("k_proj", "v_proj")


class Numbered:
    """A source whose elements are their own numbers; biases and all."""

    def __init__(self, config: ModelConfig) -> None:
        self.shapes = parameter_shapes(config)

    def tensor(self, name: str) -> Tensor:
        shape = self.shapes[name]
        return torch.arange(1, math.prod(shape) + 1).reshape(shape)

    def part(self, name: str, dim: int, ranges: tuple[tuple[int, int], ...]) -> Tensor:
        return torch.cat([self.tensor(name).narrow(dim, a, b - a) for a, b in ranges], dim)


def config_of(name: str, directory: Path) -> ModelConfig:
    save_model(VARIANTS[name], directory)
    return load_model_config(directory)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    "name", ["llama_biases", "qwen2", "qwen3_tied_biases", "qwen3_moe", "gpt2"]
)
def test_every_element_is_held_and_none_twice_but_repeated_key_heads_and_norms(
    name: str, size: int, tmp_path: Path
) -> None:
    config = config_of(name, tmp_path)
    source = Numbered(config)
    for parameter in source.shapes:
        held = [
            ShardedWeights(source, config, Shard(rank, size)).tensor(parameter).flatten()
            for rank in range(size)
        ]
        everything = source.tensor(parameter).flatten()
        if part_of(parameter, config, Shard(1, size)) is Share.WHOLE:
            assert all(part.equal(everything) for part in held)
            continue
        times = 1
        if any(key in parameter for key in REPEATED_KEYS):
            times = max(1, size // config.num_kv_heads)
        counts = torch.cat(held)
        counts = counts[counts > 0].bincount(minlength=len(everything) + 1)[1:]
        assert counts.tolist() == [times] * len(everything), parameter


@pytest.mark.parametrize(
    ("heads", "kv_heads", "size"),
    [(8, 4, 2), (8, 2, 2), (8, 2, 4), (8, 1, 4), (8, 2, 8), (12, 3, 3), (12, 3, 6)],
)
def test_each_query_head_finds_its_own_key_head_on_its_rank(
    heads: int, kv_heads: int, size: int, tmp_path: Path
) -> None:
    settings = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": 16,
                "hidden_size": 96, "intermediate_size": 96}  # fmt: skip
    save_model(Variant("llama", settings), tmp_path)
    config = load_model_config(tmp_path)
    for rank in range(size):
        shard = Shard(rank, size)
        own = shard.config(config)
        first_query = shard.query(config)[0] // 16
        first_key, end_key = (place // 16 for place in shard.key(config))
        assert end_key - first_key == own.num_kv_heads
        for head in range(own.num_heads):
            # What attention does on this rank, and what it would do in the whole model.
            key_here = first_key + head // (own.num_heads // own.num_kv_heads)
            assert key_here == (first_query + head) // (heads // kv_heads)


@pytest.mark.parametrize(
    ("settings", "size", "complaint"),
    [
        ({}, 3, "its 4 attention heads"),
        ({"num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 96}, 2, "its 3 key"),
        ({"intermediate_size": 81}, 2, "its 81 inner elements"),
        ({"vocab_size": 3}, 4, "its vocabulary of 3"),
    ],
)
def test_a_model_that_does_not_divide_is_refused_with_the_reason(
    settings: dict[str, int], size: int, complaint: str, tmp_path: Path
) -> None:
    save_model(Variant("llama", settings), tmp_path)
    with pytest.raises(ConfigError, match=f"--tensor-parallel-size {size}.*{complaint}"):
        Shard(0, size).config(load_model_config(tmp_path))


def test_a_model_whose_features_ranks_do_not_divide_is_refused(tmp_path: Path) -> None:
    save_model(VARIANTS["olmo2"], tmp_path)
    config = load_model_config(tmp_path)
    assert Shard(0, 1).config(config) is config
    with pytest.raises(ConfigError, match="norms after attention and feed-forward and norms of"):
        Shard(0, 2).config(config)


def test_a_vocabulary_that_does_not_divide_leaves_less_for_the_last_ranks() -> None:
    assert [Shard(rank, 4).vocabulary(151) for rank in range(4)] == [
        (0, 38),
        (38, 76),
        (76, 114),
        (114, 151),
    ]


def test_a_parameter_that_no_rule_names_is_not_held_by_mistake(tmp_path: Path) -> None:
    config = config_of("llama", tmp_path)
    with pytest.raises(KeyError, match="expert_proj"):
        part_of("model.layers.0.mlp.expert_proj.weight", config, Shard(0, 2))
