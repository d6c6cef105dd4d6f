"""GPT-2 has transformers' parameters, states and logits."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from engine.architecture.config import load_model_config
from engine.model.gpt2 import GPT2Model, parameter_shapes
from tests.engine.model.decoding import Weights, states_in_pieces
from tests.engine.tiny_models import VARIANTS, VOCABULARY, save_model

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = ("gpt2", "gpt2_scaled_by_depth")
TOKENS = random.Random(0).choices(range(VOCABULARY), k=50)


@pytest.mark.parametrize("name", NAMES)
def test_states_and_logits_equal_transformers_in_chunks_and_token_by_token(
    name: str, tmp_path: Path
) -> None:
    oracle = save_model(VARIANTS[name], tmp_path)
    config = load_model_config(tmp_path)
    with torch.inference_mode():
        model = GPT2Model(config, Weights(oracle))
        expected = oracle.transformer(torch.tensor([TOKENS])).last_hidden_state[0]
        logits = oracle(torch.tensor([TOKENS])).logits[0]
        found = torch.cat(states_in_pieces(model, config, TOKENS, [20, 21, 22, 47, 50]))
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(model.logits(found), logits, atol=1e-3, rtol=1e-4)
        [_, kept] = states_in_pieces(
            model, config, TOKENS, [20, 50], lambda count: torch.tensor([0, count - 1])
        )
        torch.testing.assert_close(kept, expected[[20, 49]], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_those_of_the_checkpoint(name: str, tmp_path: Path) -> None:
    oracle = save_model(VARIANTS[name], tmp_path)
    expected = {name: tuple(tensor.shape) for name, tensor in oracle.named_parameters()}
    assert parameter_shapes(load_model_config(tmp_path)) == expected
