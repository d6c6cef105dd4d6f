"""A model in two halves computes what it computes as a whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.plugin.body import SplitModel
from engine.plugin.trial import fill_strongly
from tests.engine.plugin.families import tiny_config

IDS = torch.tensor([5, 17, 9, 140])


# Logits are capped, divided, multiplied; the last one's body lies deeper than the others'.
@pytest.mark.parametrize("kind", ["gemma2", "granite", "cohere", "opt"])
@torch.inference_mode()
def test_hidden_states_and_their_logits_are_those_of_the_whole(kind: str) -> None:
    torch.manual_seed(0)
    config = tiny_config(kind)
    if kind == "granite":
        config.logits_scaling = 3.0
    model: Any = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    fill_strongly(model)
    expected = [model(input_ids=IDS[None, :count]).logits[0, -1] for count in range(1, 5)]
    split = SplitModel(model)
    # Under the mask that lets transformers build none, each token attends to all: one at a time.
    hidden = split.hidden_states(IDS[:1], torch.zeros(1, dtype=torch.int64))
    width = config.word_embed_proj_dim if kind == "opt" else config.hidden_size
    assert hidden.shape == (1, width)
    torch.testing.assert_close(split.logits(hidden)[0], expected[0])
    rows = hidden.repeat(3, 1)
    assert split.logits(rows).shape == (3, config.vocab_size)
    whole = split.whole()
    torch.testing.assert_close(whole(input_ids=IDS[None]).logits[0, -1], expected[-1])


def test_the_parameters_of_the_body_are_held_once() -> None:
    model: Any = AutoModelForCausalLM.from_config(tiny_config("llama"))
    count = sum(1 for _ in model.parameters())
    split = SplitModel(model)
    body = sum(1 for _ in split.body.parameters())
    assert sum(1 for _ in split.causal.parameters()) == count - body
