"""Norms that are replaced compute the same, and others stay."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.olmo.modeling_olmo import OlmoLayerNorm
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextRMSNormGated

from engine.cpu.library import LibraryUnavailableError, library
from engine.plugin.norms import compiled_norm

try:
    LIBRARY = library()
except LibraryUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)


class Cubed(LlamaRMSNorm):
    """Looks like a norm and is another."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        return super().forward(hidden_states) ** 3


@pytest.mark.parametrize("kind", [LlamaRMSNorm, Gemma3RMSNorm])
@pytest.mark.parametrize("eps", [1e-6, 0.3])
@torch.inference_mode()
def test_norms_of_both_kinds_compute_the_same(kind: type[nn.Module], eps: float) -> None:
    torch.manual_seed(0)
    module = kind(48, eps=eps)
    module.weight.copy_(torch.randn(48))
    found = compiled_norm(module, LIBRARY)
    assert found is not None
    for x in (torch.randn(1, 5, 3, 48), torch.randn(2, 48, 7).transpose(1, 2), torch.empty(0, 48)):
        torch.testing.assert_close(found(x), module(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "module",
    [
        Cubed(48),
        LlamaRMSNorm(50),
        LlamaRMSNorm(48).bfloat16(),
        OlmoLayerNorm(48),
        Qwen3NextRMSNormGated(48),
        nn.LayerNorm(48),
        nn.LayerNorm(48, bias=False),
        nn.Linear(48, 48),
    ],
    ids=lambda module: type(module).__name__,
)
def test_anything_else_stays(module: nn.Module) -> None:
    assert compiled_norm(module, LIBRARY) is None
