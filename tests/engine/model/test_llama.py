"""The Llama-like decoders have transformers' parameters, states and logits."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import PreTrainedModel

from engine.architecture.config import ModelConfig, load_model_config
from engine.attention.layout import Rows
from engine.model.llama import LlamaModel, embedding_multiplier
from tests.engine.model.decoding import CPU, Weights, states_in_pieces
from tests.engine.tiny_models import VARIANTS, VOCABULARY, save_model

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = (
    *("llama_biases", "llama_tied", "mistral_sliding_window", "qwen2", "qwen3"),
    *("gemma4", "gemma4_inputs"),
)
TOKENS = random.Random(0).choices(range(VOCABULARY), k=50)


def built(name: str, directory: Path) -> tuple[LlamaModel, ModelConfig, PreTrainedModel]:
    oracle = save_model(VARIANTS[name], directory)
    config = load_model_config(directory)
    model = LlamaModel(config, Weights(oracle), max_positions=64, device=CPU)
    return model, config, oracle


@pytest.mark.parametrize("name", NAMES)
def test_states_and_logits_equal_transformers_in_chunks_and_token_by_token(
    name: str, tmp_path: Path
) -> None:
    model, config, oracle = built(name, tmp_path)
    with torch.inference_mode():
        expected = oracle.model(torch.tensor([TOKENS])).last_hidden_state[0]
        logits = oracle(torch.tensor([TOKENS])).logits[0]
        found = torch.cat(states_in_pieces(model, config, TOKENS, [20, 21, 22, 47, 50]))
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(model.logits(found), logits, atol=1e-3, rtol=1e-4)


def test_only_the_wanted_rows_are_returned_and_later_pieces_see_all(tmp_path: Path) -> None:
    model, config, _ = built("qwen3", tmp_path)
    with torch.inference_mode():
        whole = states_in_pieces(model, config, TOKENS, [30, 31, 50])
        last = states_in_pieces(
            model, config, TOKENS, [30, 31, 50], lambda count: torch.tensor([count - 1])
        )
    for all_rows, kept in zip(whole, last, strict=True):
        torch.testing.assert_close(kept, all_rows[-1:], atol=1e-5, rtol=1e-5)


def test_a_model_without_rotation_and_a_foreign_layout_are_refused(tmp_path: Path) -> None:
    model, config, oracle = built("llama_tied", tmp_path)
    with pytest.raises(ValueError, match="learned positions"):
        LlamaModel(
            replace(config, learned_positions=True), Weights(oracle), max_positions=64, device=CPU
        )
    nothing = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ValueError, match="the decoder reads Plans"):
        model.hidden_states(nothing, nothing, None, Rows(nothing, nothing, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["gemma3", "granite"])
def test_embeddings_in_bfloat16_are_multiplied_as_transformers_does(
    name: str, tmp_path: Path
) -> None:
    oracle = save_model(VARIANTS[name], tmp_path)
    file = tmp_path / "config.json"
    multiplier = {"embedding_multiplier": 12.34} if name == "granite" else {}
    file.write_text(json.dumps(json.loads(file.read_text()) | multiplier))
    found = embedding_multiplier(load_model_config(tmp_path), torch.bfloat16)
    embed: Any = oracle.to(torch.bfloat16).get_input_embeddings()
    ids = torch.arange(VOCABULARY)
    plain = functional.embedding(ids, embed.weight)
    expected = plain * 12.34 if name == "granite" else embed(ids)  # as GraniteModel.forward
    assert torch.equal(plain * found, expected)
