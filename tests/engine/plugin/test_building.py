"""Models are built by transformers' own classes, or the directory is refused in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.plugin.building import (
    first_line,
    model_without_head,
    named_class,
    new_model,
    read_source,
)
from engine.plugin.shrinking import shrunk

META = torch.device("meta")
SEVERAL_TEXT_PARTS = {
    "model_type": "musicgen",
    "text_encoder": {"model_type": "t5"},
    "audio_encoder": {"model_type": "encodec"},
    "decoder": {"model_type": "musicgen_decoder"},
}


def write(directory: Path, **fields: Any) -> Path:
    (directory / "config.json").write_text(json.dumps(fields))
    return directory


def test_the_code_of_a_checkpoint_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "configuration_evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    auto_map = {"AutoConfig": "configuration_evil.EvilConfig"}
    write(tmp_path, model_type="evil", auto_map=auto_map, architectures=["EvilForCausalLM"])
    with pytest.raises(UnsupportedError, match="Quire never runs the code"):
        read_source(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"model_type": "nothing known"}, "transformers cannot read it"),
        ({}, "transformers cannot read it"),
        ({"model_type": "llama", "hidden_size": "wide"}, "transformers cannot read it"),
        ({"model_type": "gemma3"}, "more than a decoder of text"),
        ({"model_type": "phi4_multimodal"}, "more than a decoder of text"),
        (SEVERAL_TEXT_PARTS, "more than a decoder of text"),
    ],
)
def test_a_configuration_that_is_not_served_is_refused_in_a_sentence(
    fields: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=reason) as refused:
        read_source(write(tmp_path, **fields))
    assert "\n" not in str(refused.value)


def test_a_model_that_generates_no_text_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="builds no causal language model for t5"):
        new_model(AutoConfig.for_model("t5"), META, torch.float32)


def test_a_configuration_is_not_changed_by_the_models_built_from_it() -> None:
    config = shrunk(AutoConfig.for_model("mixtral"))
    before = config.to_dict()
    new_model(config, META, torch.float32)
    assert config.to_dict() == before
    assert config._attn_implementation != "quire"


@pytest.mark.parametrize("named", [None, ["LlamaForSequenceClassification"]])
def test_the_class_must_be_the_one_that_is_named(named: list[str] | None) -> None:
    config = shrunk(AutoConfig.for_model("llama"))
    model = new_model(config, META, torch.float32)
    config.architectures = named
    with pytest.raises(ConfigError, match="where LlamaForCausalLM"):
        named_class(model, config)
    config.architectures = ["LlamaForCausalLM"]
    assert named_class(model, config) == ("LlamaForCausalLM", True)
    config.architectures = ["LlamaModel"]
    assert named_class(model, config) == ("LlamaModel", False)
    config.architectures = ["LLaMAForCausalLM"]  # as the code of the checkpoint may spell it
    assert named_class(model, config) == ("LlamaForCausalLM", True)


def test_embeddings_take_the_place_of_an_absent_head() -> None:
    config = shrunk(AutoConfig.for_model("olmo"))
    config.tie_word_embeddings = False
    count = len(list(new_model(config, META, torch.float32).parameters()))
    model: Any = model_without_head(config, META, torch.float32)
    assert len(list(model.parameters())) == count - 1
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_head_with_more_than_embeddings_is_missed() -> None:
    config = shrunk(AutoConfig.for_model("phi"))
    with pytest.raises(UnsupportedError, match=r"PhiForCausalLM has lm_head\.bias besides"):
        model_without_head(config, META, torch.float32)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("one.\ntwo"), "ValueError: one"),
        (KeyError(), "KeyError"),
        (ValueError("x" * 300), "ValueError: " + "x" * 197 + "..."),
    ],
)
def test_a_librarys_error_becomes_part_of_a_sentence(error: Exception, text: str) -> None:
    assert first_line(error) == text
