"""Families that compute their attention themselves attend over our cache, as they do alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from engine.architecture.errors import UnsupportedError
from engine.plugin import inline
from engine.plugin.building import new_model
from engine.plugin.gate import attention_layers
from engine.plugin.inline import implementation, use_interface
from engine.plugin.interface import NAME
from engine.plugin.probe import probe
from engine.plugin.trial import try_kind
from tests.engine.plugin.families import save_family, tiny_config
from tests.engine.plugin.mixing import assert_equals_transformers

META = torch.device("meta")


@pytest.mark.parametrize("kind", ["falcon#40b", "xglm", "gpt_neo"])
def test_mixed_steps_equal_transformers(kind: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    oracle = save_family(kind, tmp_path)
    assert_equals_transformers(tmp_path, oracle)


@pytest.mark.parametrize(
    ("kind", "kv_heads"), [("falcon", 1), ("falcon#40b", 2), ("falcon#serial", 4), ("xglm", 16)]
)
def test_keys_that_heads_share_are_stored_once(kind: str, kv_heads: int) -> None:
    config = tiny_config(kind)
    model = new_model(config, META, torch.float32)
    layers = attention_layers(model, config, probe(model).calls, {})
    assert [layer.num_kv_heads for layer in layers] == [kv_heads] * 4


def test_only_families_without_the_interface_are_built_with_their_own_attention() -> None:
    assert implementation(AutoConfig.for_model("falcon")) == "eager"
    assert implementation(AutoConfig.for_model("llama")) == NAME
    with pytest.raises(UnsupportedError, match="falcon with ALiBi is not supported"):
        implementation(AutoConfig.for_model("falcon", alibi=True))


def test_more_positions_than_a_mask_has_room_for_are_refused() -> None:
    config = AutoConfig.for_model("gpt_neo", max_position_embeddings=4097)
    with pytest.raises(UnsupportedError, match="gpt_neo is supported up to 4096"):
        implementation(config)


def test_masks_that_older_checkpoints_store_are_not_read(tmp_path: Path) -> None:
    oracle = save_family("gpt_neo", tmp_path)
    path = tmp_path / "model.safetensors"
    stored = {
        f"transformer.h.{layer}.attn.attention.{name}": torch.zeros(1)
        for layer in range(4)
        for name in ("bias", "masked_bias")
    }
    save_file(load_file(path) | stored, path, {"format": "pt"})
    assert_equals_transformers(tmp_path, oracle)


def test_other_models_stay_as_they_are() -> None:
    model = new_model(tiny_config("llama"), META, torch.float32)
    use_interface(model)
    assert not any("forward" in vars(part) for part in model.modules())


def test_a_scale_that_is_left_out_fails_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = inline.attend
    monkeypatch.setattr(inline, "attend", lambda *given, **options: attend(*given, scaling=1.01))
    with pytest.raises(UnsupportedError, match="xglm gives other logits"):
        try_kind(AutoConfig.for_model("xglm"))
