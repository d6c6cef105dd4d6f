"""Tensors of a checkpoint find the parameters that they become."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.architecture.errors import WeightsError
from engine.plugin.building import new_model
from engine.plugin.conversion import tensor_groups
from tests.engine.plugin.families import tiny_config

EXPERT = "model.layers.1.mlp.experts.{}.{}_proj.weight"


@pytest.fixture(scope="module")
def mixture() -> Any:
    return new_model(tiny_config("qwen3_moe"), torch.device("meta"), torch.float32)


def test_experts_become_one_parameter_and_other_names_stay(mixture: Any) -> None:
    experts = [EXPERT.format(n, kind) for n in (10, 2) for kind in ("gate", "up")]
    groups, unexpected, _ = tensor_groups(mixture, [*experts, "model.norm.weight", "spare"])
    assert unexpected == ["spare"]
    by_target = {group.target: group for group in groups}
    stacked = by_target["model.layers.1.mlp.experts.gate_up_proj"]
    # In the order of the experts' numbers.
    assert [name for name, _ in stacked.sources if "gate" in name] == [
        EXPERT.format(2, "gate"),
        EXPERT.format(10, "gate"),
    ]
    assert not stacked.renames_only
    assert by_target["model.norm.weight"].renames_only


def test_absent_experts_are_found(mixture: Any) -> None:
    names = [EXPERT.format(n, kind) for n in range(4) for kind in ("gate", "up")]
    names.remove(EXPERT.format(2, "up"))
    [group] = tensor_groups(mixture, names).groups
    assert group.gaps() == [EXPERT.format(2, "up")]
    tensors = {name: torch.zeros(3, 5) for name, _ in group.sources}
    with pytest.raises(WeightsError, match=r"made of 7 tensors.*; missing: .*2\.up_proj"):
        group.parameters(tensors, mixture)


def test_layers_for_multi_token_prediction_are_known_by_the_configuration() -> None:
    config = tiny_config("deepseek_v3")
    count = config.num_hidden_layers
    names = [f"model.layers.{count + n}.eh_proj.weight" for n in range(2)]
    names += ["mtp.fc.weight", "model.layers.0.mlp.spare"]
    found: dict[int, Any] = {}
    for predicting in (0, 1):
        config.num_nextn_predict_layers = predicting
        model = new_model(config, torch.device("meta"), torch.float32)
        found[predicting] = tensor_groups(model, names)
    assert (set(found[0].unexpected), found[0].predicting) == (set(names), [])
    assert found[1].predicting == [names[0], "mtp.fc.weight"]
    assert set(found[1].unexpected) == {names[1], "model.layers.0.mlp.spare"}
