"""A mixture of experts equals that of transformers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import Llama4TextConfig, Qwen3MoeConfig
from transformers.models.llama4.modeling_llama4 import Llama4TextMoe
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

from engine.architecture.config import ModelConfig, load_model_config
from engine.architecture.features import Experts, Multipliers
from engine.model.experts import MixtureOfExperts, route
from tests.engine.tiny_models import VARIANTS, save_model

COUNT, INNER = 8, 24


class Weights:
    """A source of the parameters of a block of transformers."""

    def __init__(self, block: Qwen3MoeSparseMoeBlock) -> None:
        self._block = block

    def tensor(self, name: str) -> Tensor:
        if name == "mlp.gate.weight":
            return self._block.gate.weight.data
        number, part = int(name.split(".")[2]), name.split(".")[3]
        gate, up = self._block.experts.gate_up_proj.data[number].chunk(2)
        down = self._block.experts.down_proj.data[number]
        return {"gate_proj": gate, "up_proj": up, "down_proj": down}[part]


@pytest.fixture
def config(tmp_path: Path) -> ModelConfig:
    save_model(VARIANTS["llama"], tmp_path)
    return load_model_config(tmp_path)


@pytest.mark.parametrize("renormalised", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_it_equals_transformers(config: ModelConfig, renormalised: bool, rows: int) -> None:
    torch.manual_seed(rows)
    theirs = Qwen3MoeConfig(
        hidden_size=config.hidden_size,
        moe_intermediate_size=INNER,
        num_experts=COUNT,
        num_experts_per_tok=3,
        norm_topk_prob=renormalised,
    )
    theirs._experts_implementation = "eager"
    block = Qwen3MoeSparseMoeBlock(theirs)
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x, residual = torch.randn(2, rows, config.hidden_size)
    experts = Experts(COUNT, 3, INNER, renormalised, (True,) * config.num_layers)
    ours = replace(config, experts=experts, multipliers=Multipliers(residual=0.5))
    with torch.inference_mode():
        expected = residual + 0.5 * block(x[None])[0]
        found = MixtureOfExperts(ours, Weights(block), "mlp.").add_to(residual.clone(), x)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


class Llama4Weights:
    """The same for a block of Llama 4."""

    def __init__(self, block: Llama4TextMoe) -> None:
        self._block = block

    def tensor(self, name: str) -> Tensor:
        _, kind, *rest = name.split(".")
        if kind == "gate":
            return self._block.router.weight.data
        if kind == "shared_expert":
            return self._block.shared_expert.get_parameter(".".join(rest)).data
        gate, up = self._block.experts.gate_up_proj.data[int(rest[0])].t().chunk(2)
        down = self._block.experts.down_proj.data[int(rest[0])].t()
        return {"gate_proj": gate, "up_proj": up, "down_proj": down}[rest[1]]


@pytest.mark.parametrize("top_k", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inputs_are_scaled_and_an_expert_is_shared_as_in_llama_4(
    config: ModelConfig, top_k: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(top_k)
    theirs = Llama4TextConfig(
        hidden_size=config.hidden_size,
        intermediate_size=INNER,
        num_local_experts=COUNT,
        num_experts_per_tok=top_k,
    )
    block = Llama4TextMoe(theirs)
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    block.to(dtype)
    x, residual = torch.randn(2, 7, config.hidden_size).to(dtype)
    experts = Experts(
        COUNT, top_k, INNER, False, (True,) * config.num_layers, scales_inputs=True, has_shared=True
    )
    ours = replace(config, experts=experts)
    with torch.inference_mode():
        expected = residual + block(x[None])[0]
        found = MixtureOfExperts(ours, Llama4Weights(block), "mlp.").add_to(residual.clone(), x)
    tolerance = 1e-4 if dtype is torch.float32 else 0.05
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


def test_weights_of_the_chosen_experts_sum_to_one_only_if_renormalised() -> None:
    scores = torch.tensor([[0.0, 3.0, 1.0, 2.0]])
    experts = Experts(4, 2, INNER, True, (True,))
    chosen, weights = route(scores, experts)
    assert chosen.tolist() == [[1, 3]]
    torch.testing.assert_close(weights, torch.tensor([[3.0, 2.0]]).softmax(1))
    _, plain = route(scores, replace(experts, renormalised=False))
    torch.testing.assert_close(plain, scores.softmax(1)[:, [1, 3]])


def test_a_model_without_experts_is_refused(config: ModelConfig) -> None:
    with pytest.raises(ValueError, match="no experts"):
        MixtureOfExperts(config, None, "mlp.")  # type: ignore[arg-type]
