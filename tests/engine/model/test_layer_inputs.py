"""What each layer reads of a token is what transformers computes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from engine.architecture.config import ModelConfig, load_model_config
from engine.model.layer_inputs import LayerInput, TokenInputs
from tests.engine.model.decoding import Weights
from tests.engine.tiny_models import VARIANTS, VOCABULARY, save_model

IDS = torch.tensor([5, 0, VOCABULARY - 1, 5])


@pytest.fixture
def saved(tmp_path: Path) -> tuple[PreTrainedModel, ModelConfig]:
    oracle = save_model(VARIANTS["gemma4_inputs"], tmp_path)
    return oracle, load_model_config(tmp_path)


def test_inputs_are_made_of_tokens_and_their_embeddings(
    saved: tuple[PreTrainedModel, ModelConfig],
) -> None:
    oracle, config = saved
    with torch.inference_mode():
        x = oracle.model.embed_tokens(IDS[None])
        own = oracle.model.get_per_layer_inputs(IDS[None])
        expected = oracle.model.project_per_layer_inputs(x, own)[0]
        found = TokenInputs(config, Weights(oracle))(IDS, x[0])
    assert found.shape == (4, 4, 16)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_a_layer_adds_its_inputs_gated_by_the_stream(
    saved: tuple[PreTrainedModel, ModelConfig],
) -> None:
    oracle, config = saved
    layer = oracle.model.layers[2]
    x, inputs = torch.randn(5, 64), torch.randn(5, 16)
    with torch.inference_mode():
        gate = layer.act_fn(layer.per_layer_input_gate(x)) * inputs
        expected = x + layer.post_per_layer_input_norm(layer.per_layer_projection(gate))
        found = LayerInput(config, Weights(oracle), 2).add_to(x.clone(), inputs)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
