"""Frequencies are chosen once, by the longest sequence that the server accepts."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.architecture.errors import ConfigError
from engine.plugin.rope import Reach, freeze_frequencies, reach
from tests.engine.plugin.families import tiny_config


def new_model(kind: str) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(tiny_config(kind), dtype=torch.float32).eval()


def rotations(model: Any, positions: list[int]) -> torch.Tensor:
    """[positions, 2, head_dim]: cosines and sines."""
    x = torch.zeros(1, len(positions), 1)
    cos, sin = model.model.rotary_emb(x, position_ids=torch.tensor([positions]))
    return torch.stack((cos[0], sin[0]), dim=1)


@pytest.mark.parametrize("kind", ["phi3#longrope", "llama#dynamic"])
@pytest.mark.parametrize("longest", [200, 500])
def test_a_position_turns_alike_in_any_company(kind: str, longest: int) -> None:
    """As transformers turns it in a sequence of the maximum length."""
    ours, theirs = new_model(kind), new_model(kind)
    freeze_frequencies(ours, longest)
    expected = rotations(theirs, [5, longest - 1])
    torch.testing.assert_close(rotations(ours, [5, longest - 1]), expected)
    torch.testing.assert_close(rotations(ours, [5]), expected[:1])
    torch.testing.assert_close(rotations(ours, [5, 3]), rotations(ours, [5, 3, 511])[:2])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("llama", Reach(256, 256)),
        ("llama#dynamic", Reach(256, 768)),
        ("phi3#longrope", Reach(512, 512)),
        ("olmo3", Reach(256, 256)),
    ],
)
def test_only_frequencies_by_length_need_to_be_asked_for(kind: str, expected: Reach) -> None:
    model = new_model(kind)
    positions = model.config.max_position_embeddings
    assert reach(model, model.config.model_type, positions) == expected


def test_each_type_of_layers_may_scale() -> None:
    config = tiny_config("olmo3")
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100}
    config.rope_parameters["full_attention"] |= yarn
    model = AutoModelForCausalLM.from_config(config)
    assert reach(model, "olmo3", 256) == Reach(400, 400)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"factor": math.inf}, "rope_parameters: factor must be a number from 1e-06 to 1e.06"),
        ({"factor": 1e7}, "rope_parameters: factor must be"),
        ({"factor": "2"}, "rope_parameters: factor must be"),
        ({"original_max_position_embeddings": "2"}, "original_max_position_embeddings must be"),
        ([2.0], "config.json: rope_parameters must be an object"),
    ],
)
def test_a_scaling_out_of_range_is_refused(parameters: Any, reason: str) -> None:
    model = new_model("llama#dynamic")
    model.model.rotary_emb.config = SimpleNamespace(rope_parameters=parameters)
    with pytest.raises(ConfigError, match=reason):
        reach(model, "llama", 256)


@pytest.mark.parametrize("kinds", ["linear", {"full_attention": "linear"}])
@pytest.mark.parametrize("parameters", [None, {"full_attention": None}])
def test_without_parameters_nothing_is_scaled(kinds: Any, parameters: Any) -> None:
    model = new_model("llama")
    model.model.rotary_emb.rope_type = kinds
    model.model.rotary_emb.config = SimpleNamespace(rope_parameters=parameters)
    assert reach(model, "llama", 256) == Reach(256, 256)


@pytest.mark.parametrize("longest", [200, 500])
def test_phimoe_turns_alike_in_any_company(longest: int) -> None:
    """A short sequence as in transformers; a long one by the long frequencies, which transformers
    chooses and does not use, and by its scale."""
    ours, theirs = new_model("phimoe#longrope"), new_model("phimoe#longrope")
    freeze_frequencies(ours, longest)
    expected = rotations(theirs, [5, longest - 1])
    if longest > 256:
        angles = torch.tensor([[5.0], [longest - 1.0]]) * theirs.model.rotary_emb.inv_freq
        angles = torch.cat((angles, angles), dim=-1)
        assert not torch.allclose(expected[:, 0], angles.cos() * 1.5)
        expected = torch.stack((angles.cos(), angles.sin()), dim=1) * 1.5
    torch.testing.assert_close(rotations(ours, [5, longest - 1]), expected)
    torch.testing.assert_close(rotations(ours, [5]), expected[:1])
    torch.testing.assert_close(rotations(ours, [5, 3]), rotations(ours, [5, 3, 511])[:2])


def test_a_model_without_weights_is_frozen_too() -> None:
    with torch.device("meta"):
        model = new_model("llama#dynamic")
    freeze_frequencies(model, 500)
    assert model.model.rotary_emb.rope_type == "frozen"


def test_without_it_a_position_depends_on_its_company() -> None:
    model = new_model("phi3#longrope")
    alone = rotations(model, [5])
    assert not torch.allclose(alone, rotations(model, [5, 400])[:1])


def test_other_kinds_stay_as_they_are() -> None:
    model = new_model("llama")
    before = rotations(model, [5, 100])
    freeze_frequencies(model, 50)
    assert torch.equal(rotations(model, [5, 100]), before)
    assert model.model.rotary_emb.rope_type == "default"
