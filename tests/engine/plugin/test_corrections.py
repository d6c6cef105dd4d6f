"""What is corrected in transformers' code is so that it agrees with itself and with checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from engine.architecture.errors import UnsupportedError
from engine.plugin.building import new_model
from engine.plugin.corrections import correct
from engine.plugin.probe import probe
from engine.plugin.shrinking import shrunk
from engine.plugin.trial import TOLERANCE, try_kind
from tests.engine.plugin.families import prompt, save_family, tiny_config


def one_by_one(model: Any, token_ids: list[int]) -> Tensor:
    """Return [tokens, vocabulary] logits of transformers' own code for single tokens."""
    found, cache = [], None
    for token in token_ids:
        out = model(input_ids=torch.tensor([[token]]), past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        found.append(out.logits[0])
    return torch.cat(found)


def test_nemotron_h_computes_a_prompt_as_transformers_computes_its_tokens(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    corrected: Any = save_family("nemotron_h", tmp_path)
    own: Any = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    token_ids = prompt(40, seed=1)
    whole = torch.tensor([token_ids])
    with torch.inference_mode():
        found = corrected(input_ids=whole, use_cache=False).logits[0]
        uncorrected = own(input_ids=whole, use_cache=False).logits[0]
        # The first token is computed as a prompt is; the code for the others knows no limit.
        correct(own, own.config)
        expected = one_by_one(own, token_ids)
    near = TOLERANCE * float(expected.max() - expected.min())
    assert (found - expected).abs().max() <= near
    assert (uncorrected - expected).abs().max() > near  # else the correction is needed no longer


def test_a_limit_of_time_steps_is_refused() -> None:
    config = shrunk(AutoConfig.for_model("nemotron_h", time_step_limit=[0.001, 1.0]))
    with pytest.raises(UnsupportedError, match=r"time_step_limit is \[0.001, 1.0\]; only"):
        new_model(config, torch.device("meta"), torch.float32)


def test_groups_that_do_not_divide_the_heads_are_refused() -> None:
    config = tiny_config("nemotron_h")
    config.n_groups = 3
    says = "mamba_num_heads is 8, and must be a multiple of n_groups, 3"
    with pytest.raises(UnsupportedError, match=says):
        new_model(config, torch.device("meta"), torch.float32)


def test_other_models_stay_as_they_are() -> None:
    config = tiny_config("bamba")
    model = AutoModelForCausalLM.from_config(config)
    before = [vars(part).copy() for part in model.modules()]
    correct(model, config)
    assert [vars(part) for part in model.modules()] == before


def test_phimoe_attends_to_a_window_as_its_mask_in_transformers_does() -> None:
    torch.set_num_threads(1)
    try_kind(AutoConfig.for_model("phimoe", sliding_window=512))


def test_a_window_of_all_positions_is_none() -> None:
    config = tiny_config("phimoe")
    config.sliding_window = config.max_position_embeddings
    model: Any = new_model(config, torch.device("meta"), torch.float32)
    assert probe(model).calls[0].options.get("sliding_window") is None
