"""A model without weights shows what its layers attend to, and that no step waits for a device."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig

from engine.architecture.errors import UnsupportedError
from engine.plugin.building import new_model
from engine.plugin.probe import probe
from engine.plugin.shrinking import shrunk

META = torch.device("meta")


def test_sizes_of_a_large_model_are_found_without_its_weights() -> None:
    model = new_model(AutoConfig.for_model("deepseek_v3"), META, torch.bfloat16)
    assert sum(parameter.numel() for parameter in model.parameters()) > 600e9
    probed = probe(model)
    assert (probed.hidden_size, probed.vocab_size) == (7168, 129280)
    assert len(probed.calls) == 61
    sizes = {(c.num_heads, c.num_kv_heads, c.key_dim, c.value_dim) for c in probed.calls}
    assert sizes == {(128, 128, 192, 128)}


def test_what_a_layer_passes_is_recorded() -> None:
    model = new_model(shrunk(AutoConfig.for_model("gpt_oss")), META, torch.float32)
    calls = probe(model).calls
    assert [call.options.get("sliding_window") for call in calls] == [6, None, 6, None]
    assert all(call.options["s_aux"].shape == (4,) for call in calls)
    assert [call.layer for call in calls] == [0, 1, 2, 3]
    assert not any(call.has_mask for call in calls)
    assert all(call.is_causal for call in calls)
    assert calls[1].module == "model.layers.1.self_attn"


@pytest.mark.parametrize("kind", ["longcat_flash", "xlm", "blt"])
def test_a_model_that_reads_values_on_the_host_is_refused(kind: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot run in steps of several sequences"):
        probe(new_model(AutoConfig.for_model(kind), META, torch.float32))


def test_the_model_is_whole_afterwards() -> None:
    model = new_model(shrunk(AutoConfig.for_model("llama")), META, torch.float32)
    names = [name for name, _ in model.named_parameters()]
    probe(model)
    assert [name for name, _ in model.named_parameters()] == names
