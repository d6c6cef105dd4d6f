"""A layer as forward.c reads it has the sizes and the parts that its model has."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.architecture.config import load_model_config
from engine.cpu.layers import PackedLayers
from engine.cpu.library import LayerStruct, LibraryUnavailableError, library
from engine.model.llama import ropes_of_sizes
from tests.engine.model.decoding import Weights
from tests.engine.tiny_models import VARIANTS, save_model

try:
    LIBRARY = library()
except LibraryUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)


def layers_of(name: str, directory: Path) -> tuple[list[LayerStruct], PackedLayers]:
    oracle = save_model(VARIANTS[name], directory)
    config = load_model_config(directory)
    packed = PackedLayers(config, Weights(oracle), LIBRARY, LIBRARY.team(1), bf16_products=False)
    kinds = ropes_of_sizes(config)
    return [packed.layer(number, kinds) for number in range(config.num_layers)], packed


def test_a_plain_layer_has_nothing_else(tmp_path: Path) -> None:
    [layer, *_], _ = layers_of("llama", tmp_path)
    assert layer.qkv.weight
    assert layer.gate_up.weight
    assert (layer.attention_input is None, layer.attention_output) == (False, None)
    assert not any((layer.value.weight, layer.router.weight, layer.input_gate.weight))
    assert (layer.normed_heads, layer.window, layer.factor) == (0, 0, 1.0)


def test_layers_of_one_model_differ_in_sizes(tmp_path: Path) -> None:
    layers, _ = layers_of("gemma4", tmp_path)
    sizes = [(layer.kv_heads, layer.head_dim, layer.normed_heads) for layer in layers]
    assert sizes == [(4, 16, 12), (2, 32, 8), (2, 32, 8)]
    assert [layer.qkv.outputs for layer in layers] == [12 * 16, 8 * 32, 8 * 32]
    assert [layer.rope for layer in layers] == [0, 1, 1]
    assert all(0.6 <= layer.factor <= 1.4 for layer in layers)


def test_layers_that_share_keys_have_a_query_only_and_a_wider_feed_forward(tmp_path: Path) -> None:
    layers, _ = layers_of("gemma4_inputs", tmp_path)
    assert [layer.has_keys for layer in layers] == [1, 1, 0, 0]
    assert [layer.qkv.outputs for layer in layers[2:]] == [4 * 16, 4 * 32]
    assert [layer.normed_heads for layer in layers] == [8, 8, 4, 4]
    assert [layer.inner for layer in layers] == [80, 80, 160, 160]
    assert all(layer.input_gate.outputs == layer.input_map.inputs == 16 for layer in layers)
