"""Attention of a layer: whose keys and values it reads, and from where."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.architecture.config import load_model_config
from engine.attention.groups import GroupedKVCache
from engine.attention.layout import GroupedPlans
from engine.model.llama import LlamaModel
from engine.model.parameters import parameter_shapes
from engine.weights.experts import ExpertWeights
from engine.weights.families import FamilyWeights, stored_shapes
from tests.engine.model.decoding import CPU, Weights, states_in_pieces
from tests.engine.tiny_models import VARIANTS, VOCABULARY, save_model

pytestmark = pytest.mark.usefixtures("one_thread")
TOKENS = random.Random(0).choices(range(VOCABULARY), k=50)


def test_layers_that_share_keys_and_values_have_none_in_the_cache(tmp_path: Path) -> None:
    oracle = save_model(VARIANTS["gemma4_inputs"], tmp_path)
    config = load_model_config(tmp_path)
    model = LlamaModel(config, Weights(oracle), max_positions=64, device=CPU)
    assert model.layout_type is GroupedPlans
    assert [(kv.num_kv_heads, kv.head_dim) for kv in config.kv_layers] == [(2, 16), (2, 32)]
    seen: list[GroupedKVCache] = []
    plain = model.hidden_states

    def watched(ids: torch.Tensor, places: torch.Tensor, cache: GroupedKVCache, *rest: object):  # type: ignore[no-untyped-def]
        seen.append(cache)
        return plain(ids, places, cache, *rest)  # type: ignore[arg-type]

    model.hidden_states = watched  # type: ignore[method-assign]
    with torch.inference_mode():
        expected = oracle.model(torch.tensor([TOKENS])).last_hidden_state[0]
        found = torch.cat(states_in_pieces(model, config, TOKENS, [3, 30, 31, 50]))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert [group.layer(0).shape[1:] for group in seen[0].groups] == [(2, 2, 8, 16), (2, 2, 8, 32)]


@pytest.mark.parametrize("chunk", [1, 8, 13, 29])
@pytest.mark.parametrize("has_norms", [True, False])
def test_layers_attend_within_chunks_or_with_scaled_queries(
    chunk: int, has_norms: bool, tmp_path: Path
) -> None:
    variant = VARIANTS["llama4"]
    changes = {"attention_chunk_size": chunk, "use_qk_norm": has_norms}
    oracle = save_model(replace(variant, settings=variant.settings | changes), tmp_path)
    config = load_model_config(tmp_path)
    shapes = parameter_shapes(config)
    stored = stored_shapes(shapes, config)
    experts = ExpertWeights(Weights(oracle), stored, config.expert_storage)  # type: ignore[arg-type]
    source = FamilyWeights(experts, shapes, config)
    model = LlamaModel(config, source, max_positions=64, device=CPU)
    with torch.inference_mode():
        expected = oracle.model(torch.tensor([TOKENS])).last_hidden_state[0]
        found = torch.cat(states_in_pieces(model, config, TOKENS, [3, 30, 31, 32, 50]))
        whole = torch.cat(states_in_pieces(model, config, TOKENS, [50]))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(whole, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["gemma4", "gemma4_inputs", "olmo2"])
def test_a_piece_that_is_computed_twice_changes_nothing(name: str, tmp_path: Path) -> None:
    oracle = save_model(VARIANTS[name], tmp_path)
    config = load_model_config(tmp_path)
    model = LlamaModel(config, Weights(oracle), max_positions=64, device=CPU)
    plain = model.hidden_states

    def twice(*arguments: object) -> torch.Tensor:
        plain(*arguments)  # type: ignore[arg-type]
        return plain(*arguments)  # type: ignore[arg-type]

    cuts = [3, 30, 31, 50]
    with torch.inference_mode():
        once = states_in_pieces(model, config, TOKENS, cuts)
        model.hidden_states = twice  # type: ignore[method-assign, assignment]
        again = states_in_pieces(model, config, TOKENS, cuts)
    for one, other in zip(once, again, strict=True):
        assert torch.equal(one, other)
