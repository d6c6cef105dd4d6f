"""What transformers calls: our function for the module that attends, without a mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig

from engine.plugin.building import new_model
from engine.plugin.interface import is_no_mask, no_mask, set_attention
from engine.plugin.shrinking import shrunk

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, True),
        (no_mask(CPU), True),
        (no_mask(CPU)[:, :, :, :5], True),
        (torch.zeros(1, 1, 3, 3), False),
        (torch.zeros(1, 4, 1, 1), False),
        ("a mask", False),
    ],
)
def test_the_mask_that_is_none_is_known_again(mask: object, expected: bool) -> None:
    assert is_no_mask(mask) is expected


def test_a_module_that_was_not_prepared_may_not_attend() -> None:
    model = new_model(shrunk(AutoConfig.for_model("llama")), CPU, torch.float32)
    with pytest.raises(RuntimeError, match="LlamaAttention attends, but was not prepared"):
        model(input_ids=torch.tensor([[3, 4]]))


def test_each_module_calls_its_own_function_with_all_that_it_passes() -> None:
    model = new_model(shrunk(AutoConfig.for_model("gemma2")), CPU, torch.float32)
    seen: list[tuple[int, Mapping[str, Any]]] = []

    def attend(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        options: Mapping[str, Any],
    ) -> Tensor:
        assert is_no_mask(mask)
        assert query.shape == (1, 4, 2, 16)
        assert key.shape == value.shape == (1, 2, 2, 16)
        seen.append((module.layer_idx, options))  # type: ignore[arg-type]
        return query.transpose(1, 2)

    for module in model.modules():
        set_attention(module, attend)
    with torch.inference_mode():
        model(input_ids=torch.tensor([[3, 4]]), attention_mask=no_mask(CPU))
    assert [index for index, _ in seen] == [0, 1, 2, 3]
    assert [options["sliding_window"] for _, options in seen] == [6, None, 6, None]
    assert {options["softcap"] for _, options in seen} == {50.0}
