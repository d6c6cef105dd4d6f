"""Layers with a state are found, and compute one sequence after the other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache
from transformers.models.kimi_linear import modeling_kimi_linear

from engine.plugin.building import new_model
from engine.plugin.mixers import Runs, SequenceRows, mixers, take_turns
from engine.plugin.trial import fill_strongly
from tests.engine.plugin.families import tiny_config

META = torch.device("meta")


def test_the_modules_that_keep_a_state_are_found_with_their_layers() -> None:
    model = new_model(tiny_config("qwen3_next"), META, torch.float32)
    found = mixers(model)
    types = tiny_config("qwen3_next").layer_types
    assert list(found.values()) == [i for i, kind in enumerate(types) if kind == "linear_attention"]
    assert {name.rpartition(".")[2] for name in found} == {"linear_attn"}


def test_a_model_without_such_layers_has_none() -> None:
    assert mixers(new_model(tiny_config("llama"), META, torch.float32)) == {}


class Sums(nn.Module):
    """Adds what came before in its sequence."""

    def __init__(self, as_tuple: bool = False) -> None:
        super().__init__()
        self.as_tuple = as_tuple

    def forward(self, hidden_states: Tensor, cache: Any = None, scale: float = 1.0) -> Any:
        out = hidden_states.cumsum(1) + cache[0]
        cache[0] = out[:, -1:].clone()
        return (out * scale, "weights") if self.as_tuple else out * scale


@pytest.mark.parametrize("as_tuple", [False, True])
def test_each_sequence_meets_its_own_state_alone(as_tuple: bool) -> None:
    model = nn.ModuleDict({"mixer": Sums(as_tuple)})
    runs = Runs()
    take_turns(model, ["mixer"], runs)
    states: list[list[Any]] = [[torch.full((1, 1, 2), 10.0)], [torch.zeros(1, 1, 2)]]
    runs.now = [SequenceRows(0, 1, states[0]), SequenceRows(1, 4, states[1])]
    rows = torch.tensor([1.0, 2.0, 3.0, 4.0]).repeat_interleave(2).view(1, 4, 2)
    out = model["mixer"](rows, cache=None, attention_mask=torch.zeros(1), scale=2.0, unknown=3)
    if as_tuple:
        out, weights = out
        assert weights is None
    assert out[0, :, 0].tolist() == [22.0, 4.0, 10.0, 18.0]
    assert [float(state[0][0, 0, 0]) for state in states] == [11.0, 9.0]


@pytest.mark.parametrize(
    ("arguments", "options"), [((None,), {}), ((), {"scale": torch.ones(1, 4)})]
)
def test_what_cannot_be_divided_among_sequences_is_an_error(
    arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    model = nn.ModuleDict({"mixer": Sums()})
    take_turns(model, ["mixer"], Runs([SequenceRows(0, 4, [0])]))
    with pytest.raises(TypeError, match="a layer with a state"):
        model["mixer"](torch.zeros(1, 4, 2), *arguments, **options)


def test_kimis_attention_computes_few_tokens_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    config = tiny_config("kimi_linear")
    model = new_model(config, torch.device("cpu"), torch.float32)
    fill_strongly(model)
    name, layer = next(iter(mixers(model).items()))
    module = model.get_submodule(name)
    rows = torch.randn(1, 300, config.hidden_size)
    whole, after = DynamicCache(config=config), DynamicCache(config=config)
    lengths: list[int] = []
    real = modeling_kimi_linear.chunk_kimi_delta_attention

    def counted(query: Tensor, *arguments: Any, **options: Any) -> Any:
        lengths.append(query.shape[1])
        return real(query, *arguments, **options)

    with torch.inference_mode():
        expected = module(rows, cache=whole)
        monkeypatch.setattr(modeling_kimi_linear, "chunk_kimi_delta_attention", counted)
        take_turns(model, [name], Runs([SequenceRows(0, 300, after)]))
        found = module(rows, cache=None)
    assert lengths == [128, 128, 44]
    assert torch.allclose(found, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    states = [cache.layers[layer].recurrent_states[0] for cache in (after, whole)]
    assert torch.allclose(*states, rtol=0, atol=1e-5)
