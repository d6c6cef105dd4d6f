"""The cache and the layouts that go with a decoder, for layers of one or several shapes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.architecture.config import KVLayer
from engine.attention.cache import PagedKVCache
from engine.attention.groups import GroupedKVCache, GroupedPlanBuilder
from engine.attention.layout import GroupedPlans, Layout, LayoutBuilder, Plans, Ragged, Rows
from engine.attention.plans import PlanBuilder
from engine.attention.quantised import QuantisedKVCache
from engine.attention.tables import RaggedBuilder, RowsBuilder
from engine.config import EngineConfig
from engine.plugin.config import AttentionLayer, PluginConfig
from engine.run.caches import Caches
from engine.run.setup import RunnerSetup, set_up
from engine.sharding.collectives import ALONE
from tests.engine.tiny_models import VARIANTS, save_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    save_model(VARIANTS["qwen3"], directory)
    return directory


def setup_of(model: Path, *layers: KVLayer, **settings: str) -> RunnerSetup:
    """``layers``: those of a plug-in's decoder, in place of the model's."""
    config = EngineConfig(model=str(model), device="cpu", threads=1, dtype="float32", **settings)
    setup = set_up(config, ALONE)
    if not layers:
        return setup
    attentions = tuple(
        AttentionLayer(i, str(i), 4, kv.num_kv_heads, kv.head_dim, kv.head_dim, kv.window)
        for i, kv in enumerate(layers)
    )
    plugged = PluginConfig("A", 9, 8, 64, 99, "float32", frozenset(), attentions, None)
    return RunnerSetup(
        setup.config,
        setup.collectives,
        plugged,
        plugged,
        setup.device,
        setup.dtype,
        99,
        setup.pooling,
    )


@pytest.mark.parametrize(
    ("layout", "builder"),
    [(Plans, PlanBuilder), (Rows, RowsBuilder), (Ragged, RaggedBuilder)],
)
def test_each_decoder_gets_its_layouts(
    model: Path, layout: type[Layout], builder: type[LayoutBuilder]
) -> None:
    caches = Caches(setup_of(model), layout)
    storage = caches.create(5)
    assert isinstance(storage.cache, PagedKVCache)
    assert isinstance(storage.layouts, builder)
    assert storage.cache.num_bytes == 5 * caches.block_bytes
    assert caches.block_bytes == 2 * 3 * 2 * 32 * 16 * 4


def test_layers_of_several_shapes_share_the_blocks(model: Path) -> None:
    caches = Caches(
        setup_of(model, KVLayer(2, 16, 8), KVLayer(1, 64), KVLayer(2, 16)), GroupedPlans
    )
    storage = caches.create(5, mirrored=True)
    assert isinstance(storage.cache, GroupedKVCache)
    assert isinstance(storage.layouts, GroupedPlanBuilder)
    assert storage.cache.num_bytes == 5 * caches.block_bytes
    assert caches.block_bytes == 2 * 16 * 4 * (2 * 2 * 16 + 64)
    shapes = [(group.num_kv_heads, group.head_dim) for group in storage.cache.groups]
    assert shapes == [(2, 16), (1, 64)]


def test_rows_are_laid_out_alike_for_layers_of_several_shapes(model: Path) -> None:
    storage = Caches(setup_of(model, KVLayer(2, 16, 8), KVLayer(1, 64)), Rows).create(5)
    assert isinstance(storage.cache, GroupedKVCache)
    assert isinstance(storage.layouts, RowsBuilder)
    assert [group.num_blocks for group in storage.cache.groups] == [5, 5]


def test_a_decoder_of_one_shape_refuses_several(model: Path) -> None:
    with pytest.raises(ValueError, match="different shapes"):
        Caches(setup_of(model, KVLayer(2, 16), KVLayer(1, 64)), Plans)


def test_an_8_bit_cache_takes_a_quarter_of_float32(model: Path) -> None:
    whole = Caches(setup_of(model), Plans)
    quantised = Caches(setup_of(model, kv_cache_dtype="fp8"), Plans)
    assert quantised.block_bytes * 4 == whole.block_bytes
    assert isinstance(quantised.create(2, mirrored=True).cache, QuantisedKVCache)


def test_on_a_gpu_torch_needs_memory_for_copies_of_one_layer_s_contexts(model: Path) -> None:
    layers = (KVLayer(2, 16, 8), KVLayer(1, 64), KVLayer(2, 16))
    setup = setup_of(model, *layers)
    on_gpu = replace(setup, device=torch.device("cuda", 0))
    block = 2 * 16 * 4 * (2 * 2 * 16 + 64)
    assert Caches(setup, GroupedPlans).bytes_per_block == block
    assert Caches(on_gpu, GroupedPlans).bytes_per_block == block + 2 * 16 * (32 + 64) * 4 * 5 // 4
    alike = replace(setup_of(model), device=torch.device("cuda", 0))
    in_place, copied = Caches(alike, Ragged), Caches(alike, Plans)
    assert in_place.bytes_per_block == in_place.block_bytes == copied.block_bytes
    assert copied.copied_bytes == 2 * 2 * 32 * 16 * 4 * 5 // 4
    eight_bits = replace(setup_of(model, kv_cache_dtype="fp8"), device=torch.device("cuda", 0))
    assert Caches(eight_bits, Plans).copied_bytes == 2 * 2 * 32 * 16 * (4 + 1 + 4) * 5 // 4
