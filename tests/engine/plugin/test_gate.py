"""What would be silently wrong is refused in one sentence, before a weight is read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig

from engine.architecture.errors import UnsupportedError
from engine.plugin.building import new_model
from engine.plugin.config import AttentionLayer
from engine.plugin.gate import attention_layers
from engine.plugin.mixers import mixers
from engine.plugin.probe import AttentionCall, probe
from engine.plugin.shrinking import shrunk
from tests.engine.plugin.families import ONLY_NATIVE, REFUSED, tiny_config

META = torch.device("meta")
CALL = AttentionCall("layers.0", 0, True, 4, 2, 16, 16, False, {})


def layers_of(kind: str, **changes: Any) -> tuple[AttentionLayer, ...]:
    config = shrunk(AutoConfig.for_model(kind, **changes))
    model = new_model(config, META, torch.float32)
    return attention_layers(model, config, probe(model).calls, mixers(model))


@pytest.mark.parametrize(("kind", "reason"), (REFUSED | ONLY_NATIVE).items())
def test_a_kind_that_keeps_or_does_more_is_refused(kind: str, reason: str) -> None:
    with pytest.raises(UnsupportedError) as refused:
        layers_of(kind)
    message = str(refused.value)
    assert reason in message
    assert "\n" not in message
    assert len(message) < 400


def test_a_state_of_which_nothing_is_known_is_refused() -> None:
    config = tiny_config("lfm2")
    model = new_model(config, META, torch.float32)
    with pytest.raises(UnsupportedError, match="Lfm2ShortConv keeps more than keys and values"):
        attention_layers(model, config, probe(model).calls, {})
    assert len(attention_layers(model, config, probe(model).calls, mixers(model))) == 2


def test_a_layer_that_should_keep_a_state_must_be_found_to() -> None:
    config = tiny_config("qwen3_next")
    model = new_model(config, META, torch.float32)
    found = mixers(model)
    found.popitem()
    with pytest.raises(UnsupportedError, match="and 1 keep a state"):
        attention_layers(model, config, probe(model).calls, found)


def test_windows_and_the_sizes_of_heads_are_those_of_each_layer() -> None:
    found = layers_of("gemma4_text")
    assert [(layer.head_dim, layer.window) for layer in found] == [
        *((16, 6), (32, None)),
        *((16, 6), (32, None)),
    ]
    assert [layer.number for layer in found] == [0, 1, 2, 3]
    assert {layer.module.rpartition(".")[2] for layer in found} == {"self_attn"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_kv_heads": 3}, "shares 3 key heads among 4 heads"),
        ({"options": {"sliding_window": 0}}, "a window of 0 tokens"),
        ({"options": {"sliding_window": torch.tensor(3)}}, "a window of tensor"),
        ({"options": {"is_causal": False}}, "attends to later tokens"),
        ({"options": {"alibi": 1}}, "attends with alibi"),
        ({"has_mask": True}, "a separate mask"),
    ],
)
def test_a_call_that_asks_for_more_is_refused(changes: dict[str, Any], reason: str) -> None:
    config = shrunk(AutoConfig.for_model("llama"))
    model = new_model(config, META, torch.float32)
    calls = [CALL._replace(layer=index) for index in range(4)]
    assert len(attention_layers(model, config, calls, {})) == 4
    calls[2] = calls[2]._replace(**changes)
    with pytest.raises(UnsupportedError, match=reason):
        attention_layers(model, config, calls, {})


@pytest.mark.parametrize(
    ("indices", "reason"),
    [
        ((0, 1, 2), "3 of its 4 layers attend and 0 keep a state"),
        ((0, 1, 2, 2), "called 4 times for 3 layers"),
        ((0, 1, 2, 4), "4 of its 4 layers attend and 0 keep a state"),
        ((), "none of its layers attends"),
    ],
)
def test_each_layer_attends_exactly_once(indices: tuple[int, ...], reason: str) -> None:
    config = shrunk(AutoConfig.for_model("llama"))
    model = new_model(config, META, torch.float32)
    calls = [CALL._replace(layer=index) for index in indices]
    with pytest.raises(UnsupportedError, match=reason):
        attention_layers(model, config, calls, {})
