"""The cache has room for a layer's keys and values, whichever is wider."""

from __future__ import annotations

import pytest

from engine.architecture.config import KVLayer
from engine.plugin.config import AttentionLayer, PluginConfig


@pytest.mark.parametrize(("key_dim", "value_dim"), [(192, 128), (128, 192), (192, 192)])
def test_a_layer_holds_the_wider_of_both(key_dim: int, value_dim: int) -> None:
    layer = AttentionLayer(0, "layers.0", 16, 4, key_dim, value_dim, window=7)
    assert layer.kv == KVLayer(4, 192, 7)
    config = PluginConfig("A", 10, 8, 64, 99, "float32", frozenset(), (layer, layer), None)
    assert config.kv_layers == (layer.kv, layer.kv)
    assert config.generates
