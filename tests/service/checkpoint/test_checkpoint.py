"""What a model directory says: tokenizer, chat template, sampling defaults and output format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pocket
from service.checkpoint.checkpoint import load_checkpoint
from tests.service.tiny_model import write_tiny_model


@pytest.mark.parametrize(
    "declared",
    [
        "{{ 'one' }}",
        [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "{{ 'one' }}"}],
    ],
    ids=["a string", "a list"],
)
def test_the_template_may_stand_in_the_tokenizer_config(declared: Any, tmp_path: Path) -> None:
    directory = write_tiny_model(tmp_path / "model")
    (directory / "chat_template.jinja").unlink()
    config = {"chat_template": declared, "eos_token": {"content": "<|im_end|>"}}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    checkpoint = load_checkpoint(directory)
    assert checkpoint.template is not None
    assert checkpoint.template.render([]) == "one"
    assert checkpoint.special_tokens == {"eos_token": "<|im_end|>"}


def test_a_template_for_tools_beside_the_embedded_models_own_is_a_strangers(tmp_path: Path) -> None:
    directory = write_tiny_model(tmp_path / "model")
    own = (pocket.MODEL_DIR / "chat_template.jinja").read_text(encoding="utf-8")
    (directory / "chat_template.jinja").write_text(own, encoding="utf-8")
    assert load_checkpoint(directory).has_own_template
    (directory / "additional_chat_templates").mkdir()
    (directory / "additional_chat_templates/tool_use.jinja").write_text("x", encoding="utf-8")
    assert not load_checkpoint(directory).has_own_template
