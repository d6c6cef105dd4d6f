"""A directory is either served or refused in one sentence, before any weight is read."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from engine.architecture.config import load_model_config
from engine.architecture.errors import ModelError, UnsupportedError
from engine.architecture.text_part import TEXT_PARTS
from engine.plugin.building import new_model
from engine.plugin.reading import read_plugin_config
from engine.plugin.shrinking import shrunk
from tests.engine.plugin.families import require_release_with, save_family
from tests.engine.plugin.image_text import WITHOUT_WHOLE, save_image_text
from tests.engine.plugin.mixing import assert_equals_transformers

# Every kind of transformers that reads images and is served as text.
TEXT_KINDS = {
    f"{name}:{TEXT_PARTS[architecture].text_type}"
    for name, architecture in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.items()
    if architecture in TEXT_PARTS and name != "shieldgemma2"
} | {"mistral3:ministral3"}
TEXT_KINDS -= set(WITHOUT_WHOLE)
TEXT_KINDS_WITHOUT_CLASS = {
    kind for kind in TEXT_KINDS if kind.partition(":")[2] not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
}


def save_config(directory: Path, kind: str, **changes: Any) -> None:
    config = shrunk(AutoConfig.for_model(kind))
    config.architectures = [type(new_model(config, torch.device("meta"), torch.float32)).__name__]
    config.save_pretrained(directory)
    values = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(values | changes))


def test_what_the_engine_needs_is_found_without_weights(tmp_path: Path) -> None:
    save_config(tmp_path, "gpt_oss", eos_token_id=[7, 8], dtype="bfloat16")
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 9}')
    config = read_plugin_config(tmp_path)
    assert config.architecture == "GptOssForCausalLM"
    assert (config.vocab_size, config.hidden_size, config.dtype) == (199, 64, "bfloat16")
    assert config.max_tokens == 32 * 4096  # YaRN's
    assert config.eos_token_ids == frozenset({7, 8, 9})
    assert config.largest_matrix == 64 * 192
    assert [layer.window for layer in config.kv_layers] == [6, None, 6, None]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"architectures": ["LlamaForTokenClassification"]},
            "where LlamaForCausalLM generates text for a llama, and LlamaModel makes embeddings",
        ),
        ({"dtype": "float8"}, "dtype must be one of"),
        ({"num_hidden_layers": 1000, "layer_types": None}, "at most 512 are supported"),
        (
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": math.inf}},
            "rope_parameters: factor must be a number from",
        ),
        ({"max_position_embeddings": None}, "cannot read it|how many positions"),
    ],
)
def test_what_is_missing_is_said(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    save_config(tmp_path, "llama", **changes)
    with pytest.raises(ModelError, match=reason):
        read_plugin_config(tmp_path)


@pytest.mark.parametrize("named", ["LlamaForCausalLM", "ExaoneForCausalLM"])
def test_a_kind_that_transformers_computes_by_another_familys_class(
    named: str, tmp_path: Path
) -> None:
    """Transformers writes that class, and the hub has its own."""
    require_release_with("exaone")
    torch.set_num_threads(1)
    oracle = save_family("exaone", tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["architectures"] == ["LlamaForCausalLM"]
    (tmp_path / "config.json").write_text(json.dumps(values | {"architectures": [named]}))
    with pytest.raises(UnsupportedError, match=r"model_type exaone|ExaoneForCausalLM is not"):
        load_model_config(tmp_path)
    assert read_plugin_config(tmp_path).architecture == named
    assert_equals_transformers(tmp_path, oracle)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
def test_each_kind_of_transformers_is_computed_right_or_refused_in_a_sentence(
    kind: str, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    try:
        oracle = save_family(kind, tmp_path)
    except Exception:  # not even transformers has a tiny one
        found = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]
        names = [found] if isinstance(found, str) else list(found)
        config = {"model_type": kind, "architectures": names}
        (tmp_path / "config.json").write_text(json.dumps(config))
        oracle = None
    refusal = why_refused(tmp_path)
    if refusal is None:
        assert oracle is not None, f"{kind} is served, and was not compared"
        assert_equals_transformers(tmp_path, oracle)
    else:
        assert "\n" not in refusal
        assert 30 < len(refusal) < 500


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(TEXT_KINDS))
def test_each_text_model_of_an_image_text_kind_is_computed_right_or_refused_in_a_sentence(
    kind: str, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    oracle = save_image_text(kind, tmp_path)
    refusal = why_refused(tmp_path)
    if refusal is None:
        assert_equals_transformers(tmp_path, oracle, model_impl="transformers")
    else:
        assert kind in TEXT_KINDS_WITHOUT_CLASS
        assert "builds no causal language model" in refusal
        assert "\n" not in refusal


def why_refused(directory: Path) -> str | None:
    try:
        read_plugin_config(directory)
    except ModelError as error:
        return str(error)
    return None
